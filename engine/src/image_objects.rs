//! Images as objects of the store: stored with the message that refers to them, and loaded into a request before it is
//! sent.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::exchange::{CallError, FailedStage, Request};
use crate::image::{ImageRef, ValidatedImage, media_type};
use crate::message::{ContentBlock, Message};
use crate::store::{ObjectId, Objects, StoreError};

/// Stores the bytes of images durably, so that events may refer to the images.
///
/// # Errors
/// The bytes cannot be written.
pub fn store_images(pictures: &[ValidatedImage], objects: &Objects) -> Result<Vec<ImageRef>, StoreError> {
    if !pictures.is_empty() {
        let contents: Vec<&[u8]> = pictures.iter().map(ValidatedImage::contents).collect();
        objects.put_all(&contents)?;
    }
    Ok(pictures.iter().map(|picture| picture.image().clone()).collect())
}

/// Returns true if a request has image references without their bytes.
pub fn has_unfilled_images(request: &Request) -> bool {
    let is_open = |block: &ContentBlock| matches!(block, ContentBlock::Image(image) if image.data.is_empty());
    request.turns.iter().any(|turn| matches!(&**turn, Message::User { content } if content.iter().any(is_open)))
}

/// Loads the bytes of each image into a request before the request is sent.
///
/// # Errors
///
/// The object of an image is missing or changed, or is not an image of the recorded media type. The request is not
/// sent, and a retry would fail too.
pub fn fill_images(request: &mut Request, objects: &Objects) -> Result<(), CallError> {
    let fault = |why: String| CallError::new(FailedStage::Setup, format!("an image cannot be sent: {why}"));
    for turn in &mut request.turns {
        let Message::User { content } = &**turn else { continue };
        let mut content = content.clone();
        for block in &mut content {
            if let ContentBlock::Image(image) = block {
                let bytes = ObjectId::parse(&image.sha256).and_then(|id| objects.get(&id));
                let bytes = bytes.map_err(|error| fault(error.to_string()))?;
                // A hook can reference any object, so check that this object is an image.
                if media_type(&bytes) != Some(image.media_type.as_str()) {
                    return Err(fault(format!("the object `{}` is not {}", image.sha256, image.media_type)));
                }
                image.data = STANDARD.encode(bytes);
            }
        }
        *turn = Message::User { content }.into();
    }
    Ok(())
}
