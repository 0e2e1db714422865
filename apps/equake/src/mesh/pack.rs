//! Spark98 packfiles: meshes as text.
//!
//! The format is a sequence of numbers: nodes, dimension (3), elements, corners (4), subdomains, processors (the same);
//! then nodes, own and private nodes of the subdomain; for each node its number (from 1) and its coordinates; the
//! number of elements and for each its number (from 1) and its corners (from 0); the number of matrix entries and the
//! length of a Cholesky factor; the entries as row and column of the upper triangle with diagonal; two more integers.
//! Only undivided meshes (one subdomain) are accepted. Every claim of the file is checked before it is believed:
//! nothing is allocated that the rest of the file could not fill.

use super::{Graph, GraphError, Mesh, PAIRS, ordered};
use crate::fem::element::Tetrahedron;
use std::fmt;

/// What is wrong with a packfile, and in which line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackError {
    /// The line, from 1, if the error belongs to one.
    pub line: Option<usize>,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for PackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// The fewest characters that a node, an element and a matrix entry take in the file.
const NODE_TEXT: usize = 8;
const ELEMENT_TEXT: usize = 10;
const ENTRY_TEXT: usize = 4;

/// Reads a mesh from the text of a packfile.
pub fn parse(text: &[u8]) -> Result<Mesh, PackError> {
    let mut input = Input::new(text);
    let (nodes, elements) = header(&mut input)?;
    let coords = read_coords(&mut input, nodes)?;
    let elements = read_elements(&mut input, elements, &coords)?;
    let graph = read_graph(&mut input, nodes)?;
    for what in ["the first closing number", "the second closing number"] {
        input.count(what)?;
    }
    for (number, element) in elements.iter().enumerate() {
        for (a, b) in PAIRS {
            let (row, col) = ordered(element[a], element[b]);
            if graph.find(row, col).is_none() {
                return Err(input.error(
                    None,
                    format!(
                        "element {} joins nodes {row} and {col}, but the matrix has no entry for them",
                        number + 1
                    ),
                ));
            }
        }
    }
    Ok(Mesh {
        coords,
        elements,
        graph,
    })
}

/// The head of the file; gives the numbers of nodes and elements.
fn header(input: &mut Input<'_>) -> Result<(usize, usize), PackError> {
    input.in_header = true;
    let nodes = input.at_least("the number of nodes", 4)?;
    input.exactly("the dimension", 3)?;
    let elements = input.at_least("the number of elements", 1)?;
    input.exactly("the number of corners of an element", 4)?;
    let subdomains = input.at_least("the number of subdomains", 1)?;
    let processors = input.count("the number of processors")?;
    if processors != subdomains {
        return Err(input.here(format!(
            "{processors} processors for {subdomains} subdomains; the numbers must be equal"
        )));
    }
    if subdomains != 1 {
        return Err(input.here(format!(
            "the mesh is divided into {subdomains} subdomains; only undivided meshes (1) can be read"
        )));
    }
    input.exactly("the number of nodes of the subdomain", nodes)?;
    for what in ["the number of own nodes", "the number of private nodes"] {
        input.below(what, nodes + 1)?;
    }
    input.in_header = false;
    input.room_for(nodes, NODE_TEXT, "nodes")?;
    Ok((nodes, elements))
}

fn read_coords(input: &mut Input<'_>, nodes: usize) -> Result<Vec<[f64; 3]>, PackError> {
    let mut coords = Vec::with_capacity(nodes);
    for number in 1..=nodes {
        input.exactly("the number of the node", number)?;
        let mut node = [0.0; 3];
        for (value, what) in node.iter_mut().zip(["x", "y", "z"]) {
            *value = input.coordinate(what, number)?;
        }
        coords.push(node);
    }
    Ok(coords)
}

fn read_elements(
    input: &mut Input<'_>,
    count: usize,
    coords: &[[f64; 3]],
) -> Result<Vec<[u32; 4]>, PackError> {
    input.exactly("the number of elements of the subdomain", count)?;
    input.room_for(count, ELEMENT_TEXT, "elements")?;
    let mut elements = Vec::with_capacity(count);
    for number in 1..=count {
        input.exactly("the number of the element", number)?;
        let mut element = [0u32; 4];
        for corner in &mut element {
            *corner = input.below("a corner of the element", coords.len())? as u32;
        }
        if Tetrahedron::new(element.map(|node| coords[node as usize])).is_none() {
            return Err(input.here(format!(
                "element {number} (nodes {} {} {} {}) has no volume",
                element[0], element[1], element[2], element[3]
            )));
        }
        elements.push(element);
    }
    Ok(elements)
}

fn read_graph(input: &mut Input<'_>, nodes: usize) -> Result<Graph, PackError> {
    let count = input.at_least("the number of matrix entries", nodes)?;
    input.count("the length of the Cholesky factor")?;
    input.room_for(count, ENTRY_TEXT, "matrix entries")?;
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        let row = input.below("the row of a matrix entry", nodes)? as u32;
        let col = input.below("the column of a matrix entry", nodes)? as u32;
        if row > col {
            return Err(input.here(format!(
                "matrix entry ({row}, {col}) is below the diagonal; only the upper triangle is stored"
            )));
        }
        entries.push((row, col));
    }
    Graph::new(nodes, entries).map_err(|error| {
        let message = match error {
            GraphError::Duplicate(row, col) => {
                format!("matrix entry ({row}, {col}) is there twice")
            }
            GraphError::NoDiagonal(row) => format!("matrix row {row} has no diagonal entry"),
        };
        input.error(None, message)
    })
}

/// The numbers of the file, and where we are in it.
struct Input<'a> {
    text: &'a [u8],
    at: usize,
    line: usize,
    in_header: bool,
}

impl<'a> Input<'a> {
    fn new(text: &'a [u8]) -> Self {
        Self {
            text,
            at: 0,
            line: 1,
            in_header: true,
        }
    }

    fn error(&self, line: Option<usize>, message: String) -> PackError {
        PackError { line, message }
    }

    /// An error in the line of the number read last.
    fn here(&self, message: String) -> PackError {
        self.error(Some(self.line), message)
    }

    fn word(&mut self, what: &str) -> Result<&'a [u8], PackError> {
        while let Some(byte) = self.text.get(self.at).filter(|b| b.is_ascii_whitespace()) {
            self.line += usize::from(*byte == b'\n');
            self.at += 1;
        }
        let rest = &self.text[self.at..];
        let len = rest
            .iter()
            .position(u8::is_ascii_whitespace)
            .unwrap_or(rest.len());
        if len == 0 {
            return Err(self.here(format!(
                "the file is truncated: it ends where {what} should be"
            )));
        }
        self.at += len;
        Ok(&rest[..len])
    }

    fn not_a(&self, kind: &str, what: &str, word: &[u8]) -> PackError {
        let shown: String = String::from_utf8_lossy(&word[..word.len().min(24)])
            .chars()
            .map(|c| if c.is_control() { '?' } else { c })
            .collect();
        let start = if self.in_header {
            "this is not a Spark98 packfile: "
        } else {
            ""
        };
        self.here(format!("{start}{what} should be {kind}, but is '{shown}'"))
    }

    fn integer(&mut self, what: &str) -> Result<i64, PackError> {
        let word = self.word(what)?;
        std::str::from_utf8(word)
            .ok()
            .and_then(|word| word.parse().ok())
            .ok_or_else(|| self.not_a("an integer", what, word))
    }

    fn at_least(&mut self, what: &str, least: usize) -> Result<usize, PackError> {
        let value = self.integer(what)?;
        usize::try_from(value)
            .ok()
            .filter(|&value| value >= least)
            .ok_or_else(|| self.here(format!("{what} is {value}; it must be at least {least}")))
    }

    fn count(&mut self, what: &str) -> Result<usize, PackError> {
        self.at_least(what, 0)
    }

    fn below(&mut self, what: &str, end: usize) -> Result<usize, PackError> {
        let value = self.integer(what)?;
        usize::try_from(value)
            .ok()
            .filter(|&value| value < end)
            .ok_or_else(|| {
                self.here(format!(
                    "{what} is {value}; it must be from 0 to {}",
                    end - 1
                ))
            })
    }

    fn exactly(&mut self, what: &str, expected: usize) -> Result<(), PackError> {
        let value = self.integer(what)?;
        if usize::try_from(value) == Ok(expected) {
            Ok(())
        } else {
            Err(self.here(format!("{what} is {value}; it must be {expected}")))
        }
    }

    fn coordinate(&mut self, what: &str, node: usize) -> Result<f64, PackError> {
        let what = format!("coordinate {what} of node {node}");
        let word = self.word(&what)?;
        std::str::from_utf8(word)
            .ok()
            .and_then(|word| word.parse::<f64>().ok())
            .filter(|value| value.is_finite())
            .ok_or_else(|| self.not_a("a finite number", &what, word))
    }

    /// Refuses a count that the rest of the file cannot hold, before memory is reserved for it.
    fn room_for(&self, count: usize, each: usize, what: &str) -> Result<(), PackError> {
        let left = self.text.len() - self.at;
        if count.checked_mul(each).is_none_or(|need| need > left + 1) || count > u32::MAX as usize {
            return Err(self.here(format!(
                "the file is truncated: {count} {what} cannot be in the {left} bytes that follow"
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
