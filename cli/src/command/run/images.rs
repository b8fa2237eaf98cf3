//! `--image FILE`: images of the first message, read before the thread starts.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use rye_engine::image::{ImageError, MAX_IMAGE_BYTES, ValidatedImage};

use crate::CommandError;

/// Reads the images. The contents of a file, not its name, determine the format.
pub fn read_images(files: &[PathBuf]) -> Result<Vec<ValidatedImage>, CommandError> {
    files.iter().map(|file| read_image(file)).collect()
}

fn read_image(file: &Path) -> Result<ValidatedImage, CommandError> {
    let shown = file.display();
    let unreadable =
        |error: std::io::Error| CommandError::usage(format!("the image `{shown}` cannot be read: {error}"));
    // Reading a pipe could block, and a device has no end.
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(CommandError::usage(format!("the image `{shown}` is not a regular file")));
    }
    let mut contents = Vec::new();
    let opened = File::open(file).map_err(unreadable)?;
    opened.take(MAX_IMAGE_BYTES + 1).read_to_end(&mut contents).map_err(unreadable)?;
    ValidatedImage::read(contents).map_err(|fault| {
        let failure = CommandError::usage(format!("the image `{shown}` cannot be sent: {fault}"));
        match fault {
            ImageError::TooLarge | ImageError::Side { .. } => failure.with_help("make it smaller"),
            ImageError::Unknown | ImageError::Broken { .. } => {
                failure.with_help("supported formats: PNG, JPEG, GIF and WebP")
            }
        }
    })
}
