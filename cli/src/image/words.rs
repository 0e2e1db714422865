//! The words that an image brings along.

use std::path::Path;

use anyhow::Result;

use super::{ImageKind, archive};

/// Words for the kernel and arguments for the application.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Words {
    /// For the kernel: other words come behind them.
    pub kernel: Vec<String>,
    /// For the application: other arguments replace them.
    pub application: Vec<String>,
}

/// Reads them out of an archive's `hermit.toml`; a bare application has none.
pub fn words_of_image(path: &Path, kind: ImageKind) -> Result<Words> {
    if kind == ImageKind::Application {
        return Ok(Words::default());
    }
    Ok(words(&archive::config(path)?))
}

fn words(config: &toml::Table) -> Words {
    let input = config.get("input").and_then(toml::Value::as_table);
    let list = |key: &str| {
        let words = input.and_then(|input| input.get(key)?.as_array());
        let words = words.into_iter().flatten();
        words
            .filter_map(|word| word.as_str().map(str::to_owned))
            .collect()
    };
    Words {
        kernel: list("kernel_args"),
        application: list("app_args"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_from_the_configuration() {
        let config =
            "version = \"1\"\n[input]\nkernel_args = [\"-freq\", \"2\"]\napp_args = [\"a b\"]\n";
        let words = words(&config.parse().unwrap());
        assert_eq!(words.kernel, ["-freq", "2"]);
        assert_eq!(words.application, ["a b"]);
        assert_eq!(super::words(&toml::Table::new()), Words::default());
    }
}
