//! Converts the prompts that an ACP client sends to text and images.

use agent_client_protocol::v1::schema::{ContentBlock, EmbeddedResourceResource};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rye_compiler::plan::hex;
use rye_engine::image::{MAX_IMAGE_BYTES, ValidatedImage};
use sha2::{Digest, Sha256};

/// Maximum length of an image in base64, in bytes.
const MAX_ENCODED_IMAGE_BYTES: u64 = MAX_IMAGE_BYTES.div_ceil(3) * 4;

/// The text and the images of a prompt, converted from the blocks that the client sent.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PromptContent {
    pub text: String,
    pub images: Vec<ValidatedImage>,
}

/// Converts the blocks of a prompt.
///
/// # Errors
/// Returns the reason why a block is not accepted.
pub fn prompt_content(blocks: &[ContentBlock]) -> Result<PromptContent, String> {
    let (mut parts, mut images) = (Vec::new(), Vec::new());
    for block in blocks {
        if let ContentBlock::Text(text) = block {
            parts.push(text.text.clone());
        } else if let ContentBlock::Image(image) = block {
            images.push(read_image(&image.data, "the image")?);
        } else if let ContentBlock::ResourceLink(link) = block {
            parts.push(format!("@{}", path_of(&link.uri)));
        } else if let ContentBlock::Resource(embedded) = block {
            if let EmbeddedResourceResource::TextResourceContents(text) = &embedded.resource {
                parts.push(file_element(&text.uri, &text.text));
            } else if let EmbeddedResourceResource::BlobResourceContents(blob) = &embedded.resource {
                let name = format!("the resource `{}`", blob.uri.escape_debug());
                images.push(read_image(&blob.blob, &name)?);
            } else {
                return Err("a resource must be text or an image".to_owned());
            }
        } else {
            return Err("a prompt may contain text, images, links and resources, but no audio".to_owned());
        }
    }
    Ok(PromptContent { text: parts.join("\n"), images })
}

fn path_of(uri: &str) -> &str {
    uri.strip_prefix("file://").unwrap_or(uri)
}

/// Returns an element `<file>` that shows a text resource to the model, with its path and the hash of the text that the
/// client has sent.
fn file_element(uri: &str, text: &str) -> String {
    let path = path_of(uri).replace(['"', '<', '>'], "");
    let sha256 = hex(&Sha256::digest(text.as_bytes()));
    let body = text.replace("</file>", "<\\/file>");
    format!("<file path=\"{path}\" sha256=\"{sha256}\">\n{body}\n</file>")
}

/// Decodes an image. Its bytes determine the format.
fn read_image(data: &str, name: &str) -> Result<ValidatedImage, String> {
    if data.len() as u64 > MAX_ENCODED_IMAGE_BYTES {
        return Err(format!("{name} cannot be sent: it is larger than {} MiB", MAX_IMAGE_BYTES >> 20));
    }
    let bytes = STANDARD.decode(data).map_err(|error| format!("{name} is not valid base64: {error}"))?;
    ValidatedImage::read(bytes).map_err(|fault| format!("{name} cannot be sent: {fault}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use agent_client_protocol::v1::schema::{
        AudioContent, BlobResourceContents, EmbeddedResource, ImageContent, ResourceLink, TextContent,
        TextResourceContents,
    };

    use super::*;

    /// A PNG of one pixel.
    const PIXEL: &str =
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

    fn text(text: &str) -> ContentBlock {
        ContentBlock::Text(TextContent::new(text))
    }

    #[test]
    fn prompts_of_clients_become_text() {
        let file = TextResourceContents::new("a </file> b", "file:///p/\"x\".rs");
        let blocks = [
            text("look at"),
            ContentBlock::ResourceLink(ResourceLink::new("main", "file:///p/main.rs")),
            ContentBlock::Resource(EmbeddedResource::new(EmbeddedResourceResource::TextResourceContents(file))),
        ];
        let sha256 = hex(&Sha256::digest(b"a </file> b"));
        let expected =
            format!("look at\n@/p/main.rs\n<file path=\"/p/x.rs\" sha256=\"{sha256}\">\na <\\/file> b\n</file>");
        assert_eq!(prompt_content(&blocks).unwrap(), PromptContent { text: expected, images: Vec::new() });
    }

    #[test]
    fn images_are_decoded_and_other_data_is_refused() {
        let image = |data: &str| ContentBlock::Image(ImageContent::new(data, "image/png"));
        let blob = |data: &str| {
            let contents = BlobResourceContents::new(data, "file:///p/a.bin");
            ContentBlock::Resource(EmbeddedResource::new(EmbeddedResourceResource::BlobResourceContents(contents)))
        };
        let content = prompt_content(&[text("see"), image(PIXEL), blob(PIXEL)]).unwrap();
        assert_eq!((content.text.as_str(), content.images.len()), ("see", 2));
        for (block, reason) in [
            (image("???"), "not valid base64"),
            (image("aGVsbG8="), "not a PNG, JPEG, GIF or WebP image"),
            (image(&"A".repeat(8 << 20)), "larger than 5 MiB"),
            (blob("aGVsbG8="), "the resource `file:///p/a.bin` cannot be sent"),
            (ContentBlock::Audio(AudioContent::new("", "audio/wav")), "no audio"),
        ] {
            let error = prompt_content(&[block]).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
