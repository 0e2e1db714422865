//! Images: what the loader boots. A bare application, or Hermit's `.tar.gz` with files beside it.

mod application;
mod archive;
mod files;
mod inspect;
mod pack;
mod words;

pub use application::application;
pub use files::{FileMapping, collect_files, guest_path};
pub use inspect::{ImageKind, inspect};
pub use pack::pack;
pub use words::{Words, words_of_image};
