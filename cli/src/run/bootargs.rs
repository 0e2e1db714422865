//! The command line of a booted image.

use crate::spec::RunSpec;

/// Words for the kernel, `--`, and the application's arguments, quoted like a shell's where needed.
/// `more` are words of the platform's.
pub(super) fn command_line(spec: &RunSpec, more: &[String]) -> String {
    let mut words = kernel_words(spec);
    words.extend(more.iter().cloned());
    words.push("--".to_owned());
    words.extend(spec.args.iter().cloned());
    shell_words::join(words)
}

/// What the kernel is told about the run, whatever the machine is.
pub(super) fn kernel_words(spec: &RunSpec) -> Vec<String> {
    let mut words = vec![format!("thp={}", spec.thp), "report".to_owned()];
    if spec.debug_frames {
        words.push("debug-frames".to_owned());
    }
    words.extend(spec.env.iter().map(|variable| format!("env={variable}")));
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Thp;

    fn line(args: &[&str], env: &[&str]) -> String {
        let spec = RunSpec {
            thp: Thp::Never,
            args: args.iter().map(|&a| a.to_owned()).collect(),
            env: env.iter().map(|&a| a.to_owned()).collect(),
            ..RunSpec::default()
        };
        command_line(&spec, &[])
    }

    #[test]
    fn kernel_words_come_before_the_dashes() {
        assert_eq!(
            line(&["--steps", "3"], &["A=1"]),
            "'thp=never' report 'env=A=1' -- --steps 3"
                .replace("'thp=never'", &shell_words::quote("thp=never"))
                .replace("'env=A=1'", &shell_words::quote("env=A=1"))
        );
    }

    #[test]
    fn freed_frames_are_looked_at_if_asked_for() {
        let spec = RunSpec {
            debug_frames: true,
            ..RunSpec::default()
        };
        assert!(kernel_words(&spec).contains(&"debug-frames".to_owned()));
        assert!(!kernel_words(&RunSpec::default()).contains(&"debug-frames".to_owned()));
    }

    #[test]
    fn every_argument_survives_the_quoting() {
        let args = ["two words", "", "it's", "a\"b", "--", "x,y", "\\", "*"];
        let words = shell_words::split(&line(&args, &["V=a b"])).unwrap();
        assert_eq!(words[..4], ["thp=never", "report", "env=V=a b", "--"]);
        assert_eq!(words[4..], args);
    }
}
