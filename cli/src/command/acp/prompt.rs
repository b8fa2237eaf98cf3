//! Converts the prompts that an ACP client sends to text and images.

use std::borrow::Cow;

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
/// Returns a message if a block is not accepted, or if the prompt is empty.
pub fn prompt_content(blocks: &[ContentBlock]) -> Result<PromptContent, String> {
    let (mut parts, mut images) = (Vec::new(), Vec::new());
    for block in blocks {
        if let ContentBlock::Text(text) = block {
            parts.push(text.text.clone());
        } else if let ContentBlock::Image(image) = block {
            images.push(read_image(&image.data, "the image")?);
        } else if let ContentBlock::ResourceLink(link) = block {
            parts.push(format!("@{}", path_of(&link.uri)?));
        } else if let ContentBlock::Resource(embedded) = block {
            if let EmbeddedResourceResource::TextResourceContents(text) = &embedded.resource {
                parts.push(file_element(&path_of(&text.uri)?, &text.text));
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
    let text = parts.join("\n");
    if text.trim().is_empty() && images.is_empty() {
        return Err("the prompt is empty: send text, an image, a link or a resource".to_owned());
    }
    Ok(PromptContent { text, images })
}

/// Returns the path that a `file:` URI names, with its percent-encoding decoded; any other URI as it is.
///
/// # Errors
/// The URI names a file of another host, or its path is not UTF-8, contains control characters or is not valid
/// percent-encoding.
fn path_of(uri: &str) -> Result<Cow<'_, str>, String> {
    let split = uri.split_once("://").filter(|(scheme, _)| scheme.eq_ignore_ascii_case("file"));
    let Some((_, after)) = split else { return Ok(uri.into()) };
    let refused = |reason: &str| Err(format!("the link `{}` cannot be sent: {reason}", uri.escape_debug()));
    let (host, path) = after.split_at(after.find('/').unwrap_or(after.len()));
    if !host.is_empty() && !host.eq_ignore_ascii_case("localhost") {
        return refused("it names a file of another host; use `file:///PATH`");
    }
    match decode_percent(path).and_then(|bytes| String::from_utf8(bytes).ok()) {
        Some(path) if !path.chars().any(char::is_control) => Ok(path.into()),
        Some(_) | None => refused("its path has control characters, or is not UTF-8 in percent-encoding"),
    }
}

/// Decodes percent-encoding; `None` if a `%` is not followed by two hexadecimal digits.
fn decode_percent(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut decoded) = (text.bytes(), Vec::with_capacity(text.len()));
    let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => u8::try_from(digit(bytes.next())? * 16 + digit(bytes.next())?).ok()?,
            _ => byte,
        });
    }
    Some(decoded)
}

/// Returns a `<file>` element for the model: the text of a resource, with its path and its hash.
fn file_element(path: &str, text: &str) -> String {
    let path = path.replace(['"', '<', '>'], "");
    let sha256 = hex(&Sha256::digest(text.as_bytes()));
    let body = text.replace("</file>", "<\\/file>");
    format!("<file path=\"{path}\" sha256=\"{sha256}\">\n{body}\n</file>")
}

/// Decodes a base64 image. The format is detected from the bytes.
fn read_image(data: &str, name: &str) -> Result<ValidatedImage, String> {
    if data.len() as u64 > MAX_ENCODED_IMAGE_BYTES {
        return Err(format!("{name} cannot be sent: the image is larger than {} MiB", MAX_IMAGE_BYTES >> 20));
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

    #[test]
    fn links_name_the_decoded_path_of_a_local_file() {
        let link = |uri: &str| prompt_content(&[ContentBlock::ResourceLink(ResourceLink::new("x", uri))]);
        for (uri, expected) in [
            ("file:///p/my%20file%C3%A4.txt", "@/p/my file\u{e4}.txt"),
            ("file://localhost/p/a", "@/p/a"),
            ("FILE:///p/100%25", "@/p/100%"),
            ("https://example.com/a%20b", "@https://example.com/a%20b"),
            ("src/main.rs", "@src/main.rs"),
        ] {
            assert_eq!(link(uri).unwrap().text, expected);
        }
        for (uri, reason) in [
            ("file://evil/etc/passwd", "another host"),
            ("file:///a%0Ab", "control characters"),
            ("file:///a%ff", "not UTF-8"),
            ("file:///a%2", "percent-encoding"),
        ] {
            let error = link(uri).unwrap_err();
            assert!(error.contains(reason), "{uri}: {error}");
        }
        let file = TextResourceContents::new("x", "file:///p/a%20b");
        let resource = EmbeddedResource::new(EmbeddedResourceResource::TextResourceContents(file));
        let content = prompt_content(&[ContentBlock::Resource(resource)]).unwrap();
        assert!(content.text.starts_with("<file path=\"/p/a b\" "), "{}", content.text);
    }

    #[test]
    fn prompt_without_content_is_refused() {
        for blocks in [&[][..], &[text("")], &[text(" \n"), text("")]] {
            assert!(prompt_content(blocks).unwrap_err().contains("the prompt is empty"));
        }
    }
}
