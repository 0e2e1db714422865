use super::*;

/// Two tetrahedra that share a face.
const GOOD: &str = "5 3\n2 4\n1\n1\n5 5 5\n\
    1 0 0 0\n2 1 0 0\n3 0 1 0\n4 0 0 1\n5 1 1 1.5e0\n\
    2\n1 0 1 2 3\n2 1 2 3 4\n\
    14 20\n0 0\n0 1\n0 2\n0 3\n1 1\n1 2\n1 3\n1 4\n2 2\n2 3\n2 4\n3 3\n3 4\n4 4\n\
    0\n0\n";

fn error_of(text: &str) -> PackError {
    parse(text.as_bytes()).expect_err("this mesh is wrong")
}

/// The error after replacing a piece of the good mesh.
fn broken(from: &str, to: &str) -> PackError {
    assert!(GOOD.contains(from), "{from}");
    error_of(&GOOD.replacen(from, to, 1))
}

#[test]
fn a_good_file_is_read() {
    let mesh = parse(GOOD.as_bytes()).unwrap();
    assert_eq!(mesh.nodes(), 5);
    assert_eq!(mesh.coords[4], [1.0, 1.0, 1.5]);
    assert_eq!(mesh.elements, [[0, 1, 2, 3], [1, 2, 3, 4]]);
    assert_eq!(mesh.graph, Graph::of_elements(5, &mesh.elements));
}

#[test]
fn a_truncated_file_is_refused_wherever_it_ends() {
    let body = GOOD.trim_end();
    for end in 0..body.len() {
        assert!(parse(&body.as_bytes()[..end]).is_err(), "cut at {end}");
    }
    let error = error_of("5 3\n2 4\n");
    assert_eq!(error.line, Some(3));
    assert_eq!(
        error.message,
        "the file is truncated: it ends where the number of subdomains should be"
    );
}

#[test]
fn other_files_are_no_packfiles() {
    for text in ["\u{7f}ELF\x02\x01", "hello world", "<mesh>", "1.5 3"] {
        let error = error_of(text);
        assert_eq!(error.line, Some(1));
        assert!(
            error.message.starts_with("this is not a Spark98 packfile"),
            "{error}"
        );
    }
    assert!(parse(&[0xff, 0xfe, 0x00, 0x41]).is_err());
    assert!(parse(b"").unwrap_err().message.contains("truncated"));
}

#[test]
fn wrong_numbers_are_named_with_their_line() {
    for (from, to, line, part) in [
        (
            "5 3\n",
            "-5 3\n",
            1,
            "the number of nodes is -5; it must be at least 4",
        ),
        ("5 3\n", "5 2\n", 1, "the dimension is 2; it must be 3"),
        ("2 4\n", "-2 4\n", 2, "the number of elements is -2"),
        (
            "2 4\n",
            "2 8\n",
            2,
            "corners of an element is 8; it must be 4",
        ),
        ("\n1\n1\n", "\n1\n2\n", 4, "2 processors for 1 subdomains"),
        ("\n1\n1\n", "\n2\n2\n", 4, "divided into 2 subdomains"),
        (
            "5 5 5",
            "6 5 5",
            5,
            "the number of nodes of the subdomain is 6; it must be 5",
        ),
        (
            "5 5 5",
            "5 6 5",
            5,
            "the number of own nodes is 6; it must be from 0 to 5",
        ),
        (
            "3 0 1 0",
            "4 0 1 0",
            8,
            "the number of the node is 4; it must be 3",
        ),
        (
            "3 0 1 0",
            "3 0 NaN 0",
            8,
            "coordinate y of node 3 should be a finite number, but is 'NaN'",
        ),
        ("3 0 1 0", "3 0 1 inf", 8, "coordinate z of node 3"),
        ("3 0 1 0", "3 0 x 0", 8, "but is 'x'"),
        (
            "2 1 2 3 4",
            "2 1 2 3 5",
            13,
            "a corner of the element is 5; it must be from 0 to 4",
        ),
        (
            "2 1 2 3 4",
            "2 1 2 3 -4",
            13,
            "a corner of the element is -4",
        ),
        (
            "2 1 2 3 4",
            "2 1 2 3 3",
            13,
            "element 2 (nodes 1 2 3 3) has no volume",
        ),
        ("5 1 1 1.5e0", "5 0.5 0.5 0", 13, "has no volume"),
        (
            "2\n1 0 1",
            "3\n1 0 1",
            11,
            "the number of elements of the subdomain is 3; it must be 2",
        ),
        ("14 20", "-14 20", 14, "the number of matrix entries is -14"),
        ("14 20", "3 20", 14, "it must be at least 5"),
        (
            "3 4\n4 4",
            "3 5\n4 4",
            27,
            "the column of a matrix entry is 5",
        ),
        ("3 4\n4 4", "4 3\n4 4", 27, "below the diagonal"),
    ] {
        let error = broken(from, to);
        assert_eq!(error.line, Some(line), "{from} -> {to}: {error}");
        assert!(error.message.contains(part), "{from} -> {to}: {error}");
    }
}

#[test]
fn a_graph_that_does_not_fit_is_refused() {
    assert!(
        broken("3 3\n3 4\n", "3 4\n3 4\n")
            .message
            .contains("(3, 4) is there twice")
    );
    assert!(
        broken("3 3\n", "0 4\n")
            .message
            .contains("row 3 has no diagonal entry")
    );
    let error = broken("1 4\n", "0 4\n");
    assert_eq!(
        error.message,
        "element 2 joins nodes 1 and 4, but the matrix has no entry for them"
    );
}

#[test]
fn counts_that_the_file_cannot_hold_reserve_nothing() {
    let error = error_of("4000000000 3\n2 4\n1\n1\n4000000000 0 0\n1 0 0 0\n");
    assert!(
        error.message.contains("4000000000 nodes cannot be in the"),
        "{error}"
    );
    let error = error_of(
        &GOOD
            .replace("2 4\n1\n", "9223372036854775807 4\n1\n")
            .replace("2\n1 0 1", "9223372036854775807\n1 0 1"),
    );
    assert!(
        error.message.contains("elements cannot be in the"),
        "{error}"
    );
    assert!(
        broken("14 20", "4294967296 20")
            .message
            .contains("matrix entries cannot be")
    );
    assert!(
        error_of("99999999999999999999 3\n")
            .message
            .contains("should be an integer")
    );
}
