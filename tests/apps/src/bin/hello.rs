//! Prints its arguments and its environment.

fn main() {
    println!("hello from {}", std::env::consts::OS);
    for (number, argument) in std::env::args_os().enumerate() {
        println!("argument {number}: {}", argument.to_string_lossy());
    }
    let mut variables: Vec<_> = std::env::vars_os().collect();
    variables.sort();
    for (name, value) in variables {
        println!("env {}={}", name.to_string_lossy(), value.to_string_lossy());
    }
}
