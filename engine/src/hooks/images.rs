//! The images that an `input` hook sets for a message. Each is an image that the message already has, a file of the
//! project, or bytes in base64. An image of a hook passes the same checks as an image of the user.

use std::io::Read;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rye_grammar::ItemId;
use serde_json::Value;

use crate::image::{ImageError, ImageRef, MAX_IMAGE_BYTES, MAX_IMAGES_PER_MESSAGE, ValidatedImage};
use crate::image_objects::store_images;
use crate::machine::gate::GatedCall;
use crate::store::Objects;
use crate::tool::confine::ProjectFiles;

/// The tool whose capability a hook needs to add a file of the project.
const READ_TOOL: &str = "rye/file-system/read";

/// An image that an `input` hook sets for a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageSource {
    /// An image that the message already has.
    Kept(ImageRef),
    /// A file of the project, as the hook states its path.
    File(String),
    Bytes(Vec<u8>),
}

/// Parses the field `images` of a `transform` action. `current` is the fact `images`: the images that the message has.
///
/// # Errors
/// Returns the reason why a value names no image, or why the message has too many images.
pub(super) fn parse_sources(images: &Value, current: Option<&Value>) -> Result<Vec<ImageSource>, String> {
    let mut sources = Vec::new();
    for image in elements(images) {
        // A placeholder such as `${images}` fills an element with a list.
        for image in elements(image) {
            if sources.len() == MAX_IMAGES_PER_MESSAGE {
                return Err(format!("a message may have at most {MAX_IMAGES_PER_MESSAGE} images"));
            }
            sources.push(parse_source(image, current)?);
        }
    }
    Ok(sources)
}

fn elements(value: &Value) -> &[Value] {
    if let Value::Array(list) = value { list } else { std::slice::from_ref(value) }
}

fn parse_source(image: &Value, current: Option<&Value>) -> Result<ImageSource, String> {
    let text = |key: &str| image.get(key).and_then(Value::as_str);
    if let Some(path) = image.as_str().or_else(|| text("path")) {
        return Ok(ImageSource::File(path.to_owned()));
    }
    if let Some(data) = text("data") {
        let most = usize::try_from(MAX_IMAGE_BYTES).unwrap_or(usize::MAX).div_ceil(3).saturating_mul(4);
        if data.len() > most {
            return Err(ImageError::TooLarge.to_string());
        }
        let bytes = STANDARD.decode(data).map_err(|error| format!("the data of an image is not base64: {error}"))?;
        return Ok(ImageSource::Bytes(bytes));
    }
    let Some(sha256) = text("sha256") else {
        return Err("an image needs a `path`, its `data`, or the `sha256` of an image of the message".to_owned());
    };
    // Any other object may belong to another thread, so only an image that the message has is accepted.
    let known = current.and_then(Value::as_array).into_iter().flatten();
    let known = known.filter_map(|one| <ImageRef as serde::Deserialize>::deserialize(one).ok());
    let kept = known.into_iter().find(|one| one.sha256 == sha256);
    kept.map(ImageSource::Kept).ok_or_else(|| "the message has no image with this `sha256`".to_owned())
}

/// Returns a call of the read tool for the first image that is a file of the project. The hook needs the capability of
/// this call. `None` if no image is a file.
pub(crate) fn read_call(sources: &[ImageSource]) -> Option<GatedCall> {
    let path = sources.iter().find_map(|one| if let ImageSource::File(path) = one { Some(path) } else { None })?;
    let item_id = ItemId::parse(READ_TOOL).ok()?;
    Some(GatedCall::Tool { item_id, parameters: serde_json::json!({ "path": path }) })
}

/// Reads, validates and stores the images. Returns references to them, in the order of `sources`.
///
/// # Errors
/// Returns the reason why an image cannot be read, sent or stored.
pub(crate) fn load(sources: Vec<ImageSource>, project: &Path, objects: &Objects) -> Result<Vec<ImageRef>, String> {
    let mut images = Vec::new();
    for source in sources {
        let (name, contents) = match source {
            ImageSource::Kept(image) => {
                images.push(image);
                continue;
            }
            ImageSource::File(path) => (format!("the image `{path}`"), read_file(project, &path)?),
            ImageSource::Bytes(contents) => ("an image of the hook".to_owned(), contents),
        };
        let image = ValidatedImage::read(contents).map_err(|error| format!("{name} cannot be sent: {error}"))?;
        let stored = store_images(std::slice::from_ref(&image), objects);
        images.extend(stored.map_err(|error| format!("{name} cannot be stored: {error}"))?);
    }
    Ok(images)
}

/// Reads a file of the project. Stops one byte after the maximum size of an image, so that a larger file is refused
/// later.
fn read_file(project: &Path, path: &str) -> Result<Vec<u8>, String> {
    let files = ProjectFiles::open(project, Vec::new()).map_err(|error| error.to_string())?;
    let place = files.locate(path).map_err(|error| error.to_string())?;
    let (file, _) = files.open_file(&place).map_err(|error| error.to_string())?;
    let mut contents = Vec::new();
    let read = file.take(MAX_IMAGE_BYTES.saturating_add(1)).read_to_end(&mut contents);
    read.map_err(|error| format!("the image `{path}` cannot be read: {error}"))?;
    Ok(contents)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::image::tests::png;

    fn reference() -> Value {
        serde_json::to_value(ValidatedImage::read(png(6, 4)).unwrap().image()).unwrap()
    }

    #[test]
    fn images_of_a_hook_are_references_paths_or_data() {
        let current = json!([reference()]);
        let kept = || ImageSource::Kept(serde_json::from_value(reference()).unwrap());
        let parse = |images: Value| parse_sources(&images, Some(&current)).unwrap();
        assert_eq!(parse(json!([])), []);
        assert_eq!(parse(json!("docs/a.png")), [ImageSource::File("docs/a.png".into())]);
        assert_eq!(parse(json!([current, {"path": "b.png"}])), [kept(), ImageSource::File("b.png".into())]);
        assert_eq!(parse(json!({"data": "aGk="})), [ImageSource::Bytes(b"hi".to_vec())]);
        assert_eq!(parse(json!([{"sha256": reference()["sha256"], "bytes": 1}])), [kept()]);
    }

    #[test]
    fn hostile_images_of_a_hook_are_refused_with_a_reason() {
        let current = json!([reference()]);
        let huge = "A".repeat(7_000_000);
        for (images, reason) in [
            (json!([{"sha256": "0".repeat(64)}]), "no image with this"),
            (json!([{"sha256": "../../keys"}]), "no image with this"),
            (json!([{"data": "%%"}]), "not base64"),
            (json!([{"data": huge}]), "larger than 5 MiB"),
            (json!([7]), "needs a `path`"),
            (json!([[["a.png"]]]), "needs a `path`"),
            (json!(vec!["a.png"; 21]), "at most 20 images"),
        ] {
            let refused = parse_sources(&images, Some(&current)).unwrap_err();
            assert!(refused.contains(reason), "{refused}");
        }
        assert!(parse_sources(&current, None).is_err());
    }

    #[test]
    fn files_outside_of_the_project_and_other_contents_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path().join("p");
        for folder in [".ai/keys", ".ai/state/objects"] {
            std::fs::create_dir_all(project.join(folder)).unwrap();
        }
        let objects = Objects::new(std::sync::Arc::new(crate::store::RealDisk::open(&project).unwrap()));
        std::fs::write(folder.path().join("out.png"), png(6, 4)).unwrap();
        std::fs::write(project.join(".ai/keys/a.png"), png(6, 4)).unwrap();
        std::fs::write(project.join("a.png"), png(6, 4)).unwrap();
        std::fs::write(project.join("b.png"), "text").unwrap();
        std::fs::write(project.join("c.png"), vec![0; 6 << 20]).unwrap();
        std::os::unix::fs::symlink("../out.png", project.join("link.png")).unwrap();
        let load = |path: &str| load(vec![ImageSource::File(path.into())], &project, &objects);
        assert_eq!(load("a.png").unwrap().len(), 1);
        for path in
            ["../out.png", "/etc/passwd", "link.png", ".ai/keys/a.png", "b.png", "c.png", "missing.png", ".", ""]
        {
            let refused = load(path).unwrap_err();
            assert!(!refused.is_empty(), "{path}");
        }
        assert!(load("b.png").unwrap_err().contains("not a PNG"));
        assert!(load("c.png").unwrap_err().contains("larger than 5 MiB"));
    }
}
