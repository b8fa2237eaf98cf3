//! Images in a user's message (`engine.md` 3): detects the type from the bytes, checks that the model accepts the
//! images, and makes the reference that the transcript stores. The bytes are an object of the store. Only a request
//! that is being sent contains the bytes.

use rye_compiler::plan::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Maximum size of one image, in bytes: the smallest maximum of the providers.
pub const MAX_IMAGE_BYTES: u64 = 5 * 1024 * 1024;
/// Maximum total size of a message's images, in bytes. Images of this size fit into one request in base64 on every
/// wire.
pub(crate) const MAX_MESSAGE_IMAGE_BYTES: u64 = 14 * 1024 * 1024;
/// Maximum number of images in a message.
pub(crate) const MAX_IMAGES_PER_MESSAGE: usize = 20;
/// Maximum width, and maximum height, of an image in pixels.
const MAX_SIDE_PIXELS: u32 = 8_000;
/// Pixels per token. `MAX_IMAGE_TOKENS` caps the token estimate, because providers scale larger images down.
const PIXELS_PER_TOKEN: u64 = 750;
const MAX_IMAGE_TOKENS: u64 = 1_600;
const MIN_IMAGE_TOKENS: u64 = 85;
/// Maximum tokens of an image on Anthropic models: the count at the high resolution of the newest models.
const MAX_ANTHROPIC_IMAGE_TOKENS: u64 = 4_784;
/// Maximum tokens of an image on the OpenAI model with the highest count: 2,833, plus 5,667 for each of the 8 tiles of
/// the largest image.
const MAX_OPENAI_IMAGE_TOKENS: u64 = 2_833 + 8 * 5_667;
/// Maximum tokens of an image on Gemini models: 258 for each of the 11 × 11 tiles of the largest image.
const MAX_GEMINI_IMAGE_TOKENS: u64 = 258 * 11 * 11;

/// A reference to an image of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRef {
    pub media_type: String,
    /// Id of the object with the image's bytes.
    pub sha256: String,
    pub bytes: u64,
    /// Width in pixels.
    pub width: u32,
    pub height: u32,
    /// The bytes in base64; empty except in a request that is being sent.
    #[serde(skip)]
    pub data: String,
}

/// An image with its bytes, validated for sending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidatedImage {
    image: ImageRef,
    contents: Vec<u8>,
}

/// The reason why bytes cannot be sent as an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    #[error("not a PNG, JPEG, GIF or WebP image")]
    Unknown,
    #[error("the image looks like {media_type}, but its size cannot be read")]
    Broken { media_type: &'static str },
    #[error("the image is larger than {} MiB", MAX_IMAGE_BYTES >> 20)]
    TooLarge,
    #[error("it has {width} × {height} pixels; each side must have 1 to {MAX_SIDE_PIXELS}")]
    Side { width: u32, height: u32 },
}

/// The reason why the images of a message cannot be sent to a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageNotAccepted {
    #[error("the model `{model}` does not accept images, according to its provider file")]
    NoImages { model: String },
    #[error("the wire format `{wire}` of `{model}` does not accept `{media_type}`")]
    MediaType { model: String, wire: String, media_type: String },
    #[error("a message may have at most {MAX_IMAGES_PER_MESSAGE} images, but has {count}")]
    TooMany { count: usize },
    #[error("the images of a message may have at most {} MiB in total", MAX_MESSAGE_IMAGE_BYTES >> 20)]
    TooLarge,
    #[error("the thread `{thread}` is still running and accepts only text")]
    Unfinished { thread: String },
}

impl ValidatedImage {
    /// Reads the header of an image, regardless of the file name.
    ///
    /// # Errors
    ///
    /// Fails if providers do not accept the type, if the size in pixels cannot be read, or if the image is too large.
    pub fn read(contents: Vec<u8>) -> Result<Self, ImageError> {
        let bytes = contents.len() as u64;
        if bytes > MAX_IMAGE_BYTES {
            return Err(ImageError::TooLarge);
        }
        let media_type = media_type(&contents).ok_or(ImageError::Unknown)?;
        let (width, height) = pixel_size(media_type, &contents).ok_or(ImageError::Broken { media_type })?;
        if ![width, height].iter().all(|side| (1..=MAX_SIDE_PIXELS).contains(side)) {
            return Err(ImageError::Side { width, height });
        }
        let sha256 = hex(&Sha256::digest(&contents));
        let image = ImageRef { media_type: media_type.to_owned(), sha256, bytes, width, height, data: String::new() };
        Ok(Self { image, contents })
    }

    pub fn image(&self) -> &ImageRef {
        &self.image
    }

    /// Returns the bytes of the image.
    pub fn contents(&self) -> &[u8] {
        &self.contents
    }
}

impl ImageRef {
    /// Estimates the tokens of the image from its pixels.
    pub(crate) fn estimate_tokens(&self) -> u64 {
        let pixels = u64::from(self.width).saturating_mul(u64::from(self.height));
        pixels.div_ceil(PIXELS_PER_TOKEN).clamp(MIN_IMAGE_TOKENS, MAX_IMAGE_TOKENS)
    }

    /// Returns the largest number of tokens that the providers of a wire format document for one image.
    pub fn max_tokens(&self, wire: &str) -> u64 {
        match wire {
            "openai-chat" | "openai-responses" => MAX_OPENAI_IMAGE_TOKENS,
            "gemini" => MAX_GEMINI_IMAGE_TOKENS,
            _ => MAX_ANTHROPIC_IMAGE_TOKENS,
        }
    }

    /// Describes the image in one line, for display.
    pub fn describe(&self) -> String {
        format!("image, {}, {} × {}, {} bytes", self.media_type, self.width, self.height, self.bytes)
    }
}

/// Checks that a model, and its fallback, accept these images in one message.
///
/// # Errors
/// The model or its fallback accepts no images or does not accept the type of an image, or the images are too many or
/// too large for one message.
pub fn check_accepted(model: &rye_compiler::plan::PlannedModel, images: &[ImageRef]) -> Result<(), ImageNotAccepted> {
    let name = || format!("{}/{}", model.provider, model.id);
    if images.is_empty() {
        return Ok(());
    }
    if !model.images {
        return Err(ImageNotAccepted::NoImages { model: name() });
    }
    if images.len() > MAX_IMAGES_PER_MESSAGE {
        return Err(ImageNotAccepted::TooMany { count: images.len() });
    }
    if images.iter().fold(0, |sum: u64, image| sum.saturating_add(image.bytes)) > MAX_MESSAGE_IMAGE_BYTES {
        return Err(ImageNotAccepted::TooLarge);
    }
    // Gemini does not accept GIF.
    let refused = images.iter().find(|image| model.wire == "gemini" && image.media_type == "image/gif");
    if let Some(image) = refused {
        let (wire, media_type) = (model.wire.clone(), image.media_type.clone());
        return Err(ImageNotAccepted::MediaType { model: name(), wire, media_type });
    }
    model.fallback.as_deref().map_or(Ok(()), |model| check_accepted(model, images))
}

/// Detects the media type from the first bytes; `None` if they belong to no type that providers accept.
pub(crate) fn media_type(contents: &[u8]) -> Option<&'static str> {
    if contents.starts_with(b"\x89PNG\r\n\x1a\n") {
        Some("image/png")
    } else if contents.starts_with(b"\xff\xd8\xff") {
        Some("image/jpeg")
    } else if contents.starts_with(b"GIF87a") || contents.starts_with(b"GIF89a") {
        Some("image/gif")
    } else if contents.starts_with(b"RIFF") && contents.get(8..12) == Some(b"WEBP".as_slice()) {
        Some("image/webp")
    } else {
        None
    }
}

/// Reads width and height in pixels from the header; `None` if the header is invalid.
fn pixel_size(media_type: &str, contents: &[u8]) -> Option<(u32, u32)> {
    match media_type {
        "image/png" => (contents.get(12..16)? == b"IHDR")
            .then_some(())
            .and_then(|()| Some((big_endian(contents, 16, 4)?, big_endian(contents, 20, 4)?))),
        "image/gif" => Some((little_endian(contents, 6, 2)?, little_endian(contents, 8, 2)?)),
        "image/webp" => webp_dimensions(contents),
        _ => jpeg_dimensions(contents),
    }
}

fn webp_dimensions(contents: &[u8]) -> Option<(u32, u32)> {
    match contents.get(12..16)? {
        b"VP8X" => Some((little_endian(contents, 24, 3)? + 1, little_endian(contents, 27, 3)? + 1)),
        b"VP8L" => {
            let bits = little_endian(contents, 21, 4)?;
            (contents.get(20) == Some(&0x2f)).then_some(((bits & 0x3fff) + 1, ((bits >> 14) & 0x3fff) + 1))
        }
        b"VP8 " => (contents.get(23..26)? == [0x9d, 0x01, 0x2a])
            .then_some(())
            .and_then(|()| Some((little_endian(contents, 26, 2)? & 0x3fff, little_endian(contents, 28, 2)? & 0x3fff))),
        _ => None,
    }
}

/// Returns width and height in pixels of a JPEG image, as its frame header states them. Other segments precede the
/// frame header. `None` if there is no valid frame header.
fn jpeg_dimensions(contents: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2_usize;
    loop {
        if contents.get(at)? != &0xff {
            return None;
        }
        let marker = *contents.get(at + 1)?;
        match marker {
            // Fill bytes may precede a marker.
            0xff => at += 1,
            0x01 | 0xd0..=0xd8 => at += 2,
            0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => {
                return Some((big_endian(contents, at + 7, 2)?, big_endian(contents, at + 5, 2)?));
            }
            _ => {
                let length = usize::try_from(big_endian(contents, at + 2, 2)?).ok()?;
                at = at.checked_add(2)?.checked_add(length.max(2))?;
            }
        }
    }
}

fn big_endian(contents: &[u8], at: usize, bytes: usize) -> Option<u32> {
    let part = contents.get(at..at.checked_add(bytes)?)?;
    Some(part.iter().fold(0_u32, |number, byte| number.wrapping_shl(8) | u32::from(*byte)))
}

fn little_endian(contents: &[u8], at: usize, bytes: usize) -> Option<u32> {
    let part = contents.get(at..at.checked_add(bytes)?)?;
    Some(part.iter().rev().fold(0_u32, |number, byte| number.wrapping_shl(8) | u32::from(*byte)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
pub(crate) mod tests;
