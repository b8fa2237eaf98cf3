//! Tests of image detection, limits, and storage.

use crate::exchange::Request;
use crate::image_objects::fill_images;
use crate::image_objects::has_unfilled_images;
use crate::image_objects::store_images;
use crate::message::ContentBlock;
use crate::store::Objects;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rye_compiler::plan::PlannedModel;

use super::*;
use crate::machine::fixture::plan;
use crate::provider::fixture::{minimal_request, parse_body, user};
use crate::provider::{ProviderSettings, Wire, provider_schemas};
use crate::store::RealDisk;

/// Returns the header of a PNG of this size.
pub fn png(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR".to_vec();
    bytes.extend(width.to_be_bytes());
    bytes.extend(height.to_be_bytes());
    bytes.extend([8, 6, 0, 0, 0]);
    bytes
}

fn jpeg(width: u16, height: u16) -> Vec<u8> {
    // The file holds a comment, a fill byte, and then the frame.
    let mut bytes = vec![0xff, 0xd8, 0xff, 0xfe, 0, 4, b'h', b'i', 0xff, 0xff, 0xc2, 0, 11, 8];
    bytes.extend(height.to_be_bytes());
    bytes.extend(width.to_be_bytes());
    bytes.extend([1, 1, 0x11, 0]);
    bytes
}

fn gif(width: u16, height: u16) -> Vec<u8> {
    let mut bytes = b"GIF89a".to_vec();
    bytes.extend(width.to_le_bytes());
    bytes.extend(height.to_le_bytes());
    bytes
}

fn webp(kind: &str, rest: &[u8]) -> Vec<u8> {
    let mut bytes = b"RIFF\x00\x00\x00\x00WEBP".to_vec();
    bytes.extend(kind.as_bytes());
    bytes.extend([0; 4]);
    bytes.extend(rest);
    bytes
}

fn inspect(contents: Vec<u8>) -> (String, u32, u32) {
    let image = ValidatedImage::read(contents).unwrap().image;
    (image.media_type, image.width, image.height)
}

#[test]
fn media_type_and_size_come_from_the_bytes() {
    let extended = webp("VP8X", &[0, 0, 0, 0, 0x7f, 2, 0, 0xdf, 1, 0]);
    let lossless = webp("VP8L", &[0x2f, 0x7f, 0xc2, 0x77, 0]);
    let lossy = webp("VP8 ", &[0, 0, 0, 0x9d, 0x01, 0x2a, 0x80, 2, 0xe0, 1]);
    let webp = "image/webp".to_owned();
    assert_eq!(inspect(png(640, 480)), ("image/png".to_owned(), 640, 480));
    assert_eq!(inspect(jpeg(640, 480)), ("image/jpeg".to_owned(), 640, 480));
    assert_eq!(inspect(gif(640, 480)), ("image/gif".to_owned(), 640, 480));
    assert_eq!(inspect(extended), (webp.clone(), 640, 480));
    assert_eq!(inspect(lossless), (webp.clone(), 640, 480));
    assert_eq!(inspect(lossy), (webp, 640, 480));
}

#[test]
fn invalid_images_are_refused_without_overread() {
    assert_eq!(ValidatedImage::read(Vec::new()), Err(ImageError::Unknown));
    assert_eq!(ValidatedImage::read(b"<svg xmlns='http://www.w3.org/2000/svg'/>".to_vec()), Err(ImageError::Unknown));
    assert_eq!(ValidatedImage::read(b"%PDF-1.7".to_vec()), Err(ImageError::Unknown));
    let huge = usize::try_from(MAX_IMAGE_BYTES).unwrap() + 1;
    assert_eq!(ValidatedImage::read(vec![0; huge]), Err(ImageError::TooLarge));
    assert_eq!(ValidatedImage::read(png(0, 5)), Err(ImageError::Side { width: 0, height: 5 }));
    assert_eq!(ValidatedImage::read(png(5, 8_001)), Err(ImageError::Side { width: 5, height: 8_001 }));
    // A truncated file is refused, unless only some of its last 5 bytes are missing.
    for whole in [png(6, 4), jpeg(6, 4), gif(6, 4), webp("VP8X", &[0, 0, 0, 0, 5, 0, 0, 3, 0, 0])] {
        let validated = ValidatedImage::read(whole.clone()).unwrap();
        for end in 0..whole.len() {
            let cut = ValidatedImage::read(whole.get(..end).unwrap().to_vec());
            assert!(
                cut.is_err_and(|fault| matches!(fault, ImageError::Unknown | ImageError::Broken { .. }))
                    || end >= whole.len() - 5,
                "{end} of {}",
                validated.image().media_type
            );
        }
    }
    // Segments without an end are refused.
    assert!(ValidatedImage::read([&[0xff, 0xd8][..], &[0xff; 4_096]].concat()).is_err());
    assert!(ValidatedImage::read([&[0xff, 0xd8][..], &[0xff, 0xe0, 0, 0].repeat(1_000)].concat()).is_err());
}

fn model(change: impl Fn(&mut PlannedModel)) -> PlannedModel {
    let mut model = plan().model;
    change(&mut model);
    model
}

#[test]
fn images_a_model_does_not_accept_are_refused() {
    let image = |bytes: Vec<u8>| ValidatedImage::read(bytes).unwrap().image;
    let (still, moving) = (image(png(6, 4)), image(gif(6, 4)));
    let blind = |model: &mut PlannedModel| model.images = false;
    assert_eq!(check_accepted(&model(blind), &[]), Ok(()));
    assert!(matches!(
        check_accepted(&model(blind), std::slice::from_ref(&still)),
        Err(ImageNotAccepted::NoImages { .. })
    ));
    let gemini = model(|model| model.wire = "gemini".to_owned());
    assert_eq!(check_accepted(&gemini, std::slice::from_ref(&still)), Ok(()));
    assert!(matches!(check_accepted(&gemini, std::slice::from_ref(&moving)), Err(ImageNotAccepted::MediaType { .. })));
    let any = model(|_| {});
    assert_eq!(check_accepted(&any, &vec![still.clone(); MAX_IMAGES_PER_MESSAGE]), Ok(()));
    assert_eq!(
        check_accepted(&any, &vec![still.clone(); MAX_IMAGES_PER_MESSAGE + 1]),
        Err(ImageNotAccepted::TooMany { count: MAX_IMAGES_PER_MESSAGE + 1 })
    );
    let large = ImageRef { bytes: MAX_IMAGE_BYTES, ..still.clone() };
    assert_eq!(check_accepted(&any, &vec![large; 3]), Err(ImageNotAccepted::TooLarge));
    // The fallback model must accept the images too.
    let backed = model(|one| one.fallback = Some(Box::new(model(blind))));
    assert!(matches!(check_accepted(&backed, &[still]), Err(ImageNotAccepted::NoImages { .. })));
}

#[test]
fn image_tokens_follow_its_pixels() {
    let tokens = |width, height| ValidatedImage::read(png(width, height)).unwrap().image.estimate_tokens();
    assert_eq!((tokens(1, 1), tokens(750, 200), tokens(8_000, 8_000)), (85, 200, 1_600));
}

#[test]
fn image_bytes_are_only_in_sent_requests() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join(".ai/state/objects")).unwrap();
    let objects = Objects::new(std::sync::Arc::new(RealDisk::open(folder.path()).unwrap()));
    let picture = ValidatedImage::read(png(6, 4)).unwrap();
    let kept = store_images(&[picture.clone(), picture], &objects).unwrap();
    let message = crate::message::Message::user_with_images(&kept, "What is it?");
    let text = serde_json::to_string(&message).unwrap();
    assert!(text.contains("\"type\":\"image\",\"media_type\":\"image/png\",\"sha256\":") && !text.contains("data"));
    assert_eq!(serde_json::from_str::<crate::message::Message>(&text).unwrap(), message);
    let mut request = Request { turns: vec![message.into()], ..minimal_request() };
    assert!(has_unfilled_images(&request));
    fill_images(&mut request, &objects).unwrap();
    assert!(!has_unfilled_images(&request));
    for wire in [Wire::Anthropic, Wire::OpenaiChat, Wire::OpenaiResponses, Wire::Gemini] {
        let body =
            parse_body(&crate::provider::encode(&ProviderSettings::with_defaults("test", wire), &request).unwrap());
        provider_schemas::validate_body(wire, &body).unwrap_or_else(|why| panic!("{}: {why}", wire.name()));
        assert_eq!(body.to_string().matches(&STANDARD.encode(png(6, 4))).count(), 2, "{}", wire.name());
    }
    // An object that a hook references as an image is validated; a missing object is reported.
    let secret = objects.put(b"a result of another thread").unwrap();
    for (sha256, why) in
        [(secret.as_str(), "is not image/png"), (&*"0".repeat(64), "read"), ("../x", "not an object id")]
    {
        let image = ImageRef { sha256: sha256.to_owned(), ..kept.first().unwrap().clone() };
        let mut request = Request { turns: vec![user(vec![ContentBlock::Image(image)])], ..minimal_request() };
        let error = fill_images(&mut request, &objects).unwrap_err();
        assert!(error.message.contains(why), "{error}");
    }
}
