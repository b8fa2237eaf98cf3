//! Tests of masking: key formats, and known values in every encoding and wrapping.

#![allow(clippy::unwrap_used, reason = "tests")]

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proptest::prelude::*;
use serde_json::json;

use super::*;

#[test]
fn every_key_format_starts_with_a_known_prefix() {
    let hirs = KEY_FORMATS.map(|(word, shape)| (word, regex_syntax::parse(shape).expect(word)));
    for (word, hir) in hirs {
        let beginnings = regex_syntax::hir::literal::Extractor::new().extract(&hir);
        let literals = beginnings.literals().expect(word);
        assert!(!literals.is_empty(), "{word}");
        for literal in literals {
            let literal = String::from_utf8_lossy(literal.as_bytes()).into_owned();
            let found = KEY_PREFIXES.iter().any(|beginning| literal.starts_with(beginning));
            assert!(found, "{word}: `{literal}` begins with nothing that is looked for");
        }
    }
}

#[test]
fn known_key_formats_are_masked() {
    // Assembled here, so that this file contains no key.
    let long = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8";
    for (key, word) in [
        (format!("sk-ant-{long}"), "Anthropic key"),
        (format!("sk-proj-{long}"), "API key"),
        (format!("ghp_{long}"), "GitHub token"),
        (format!("glpat-{long}"), "GitLab token"),
        (format!("AKIA{}", "ABCDEFGH12345678"), "AWS key id"),
        (format!("AIza{}", long.get(..35).unwrap_or_default()), "Google key"),
        (format!("xoxb-{long}"), "Slack token"),
        (format!("eyJ{long}.eyJ{long}.{long}"), "JSON web token"),
        (
            format!("-----BEGIN OPENSSH {0}-----\n{long}\n{long}\n-----END OPENSSH {0}-----", "PRIVATE KEY"),
            "private key",
        ),
        (format!("-----BEGIN {}-----\n{long} cut off", "PRIVATE KEY"), "private key"),
    ] {
        let masked = mask_with(&format!("key={key}"), &KnownSecrets::default()).into_owned();
        assert_eq!(masked, format!("key=[masked: {word}]"));
    }
}

#[test]
fn ordinary_text_stays_as_it_is() {
    for text in
        ["", "sk-short", "task-force-of-a-kind-that-is-long-enough", "let key = read()?;", "AKIA", "eyJ.eyJ.x", "ghp_x"]
    {
        assert!(matches!(mask_with(text, &KnownSecrets::default()), Cow::Borrowed(_)), "{text}");
    }
}

#[test]
fn process_secrets_are_masked_by_value() {
    let variables = [
        ("MY_API_KEY", "correct horse battery"),
        ("TOKEN", "short"),
        ("KEY_FILE", "/a/path/to/something"),
        ("PATH", "horse battery staple"),
    ];
    let own = secret_variables(variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(own.len(), 1);
    let own = KnownSecrets::new(own);
    assert_eq!(mask_with("a correct horse battery staple", &own), "a [masked: MY_API_KEY] staple");
    let mut value = json!({"a": ["nothing", {"b": format!("sk-ant-{}", "x".repeat(30))}], "n": 1});
    mask_value(&mut value);
    assert_eq!(value, json!({"a": ["nothing", {"b": "[masked: Anthropic key]"}], "n": 1}));
}

#[test]
fn known_value_is_masked_in_every_encoding() {
    let value = "p\u{e4}ss \"word\"/+0123";
    let own = KnownSecrets::new(vec![("MY_SECRET".to_owned(), value.to_owned())]);
    let hex = hex(value.as_bytes());
    for text in [
        value.to_owned(),
        json!({"a": value}).to_string(),
        "p%C3%A4ss%20%22word%22%2F%2B0123".to_owned(),
        "p%c3%a4ss%20%22word%22%2f%2b0123".to_owned(),
        hex.to_uppercase(),
        hex,
    ] {
        let masked = mask_with(&text, &own).into_owned();
        assert!(masked.contains("[masked: MY_SECRET]") && !masked.contains("0123"), "{masked}");
    }
    for before in ["", "u", "us", "use", "user:"] {
        for after in ["", "x", "xy", "xyz"] {
            let whole = format!("{before}{value}{after}");
            for text in [STANDARD_NO_PAD.encode(&whole), URL_SAFE_NO_PAD.encode(&whole)] {
                let masked = mask_with(&text, &own).into_owned();
                assert!(masked.contains("[masked: MY_SECRET]") && masked.len() < 32, "{before} {after}: {masked}");
            }
        }
    }
}

#[test]
fn added_secrets_are_masked_in_keys_too() {
    let learnt = "learnt-in-a-test-and-nowhere-else";
    assert_eq!(mask_secrets(learnt), learnt);
    let variables = [("LEARNT_TOKEN", learnt), ("LEARNT_PATH", "nothing-that-is-a-secret-at-all")];
    add_secrets(variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(mask_secrets(learnt), "[masked: LEARNT_TOKEN]");
    assert_eq!(mask_secrets("nothing-that-is-a-secret-at-all"), "nothing-that-is-a-secret-at-all");
    let mut value = json!({"a": 1, learnt: [learnt]});
    mask_value(&mut value);
    assert_eq!(value, json!({"a": 1, "[masked: LEARNT_TOKEN]": ["[masked: LEARNT_TOKEN]"]}));
}

#[test]
fn wrapped_and_escaped_values_are_masked() {
    let value = "/p\u{e4}ss \"word\"/+0123/and-more_of-it";
    let own = KnownSecrets::new(vec![("MY_SECRET".to_owned(), value.to_owned())]);
    let base64 = STANDARD_NO_PAD.encode(format!("{}{value}{}", "before ".repeat(11), " after".repeat(11)));
    let hex = hex(value.as_bytes());
    let lines = |text: &str, width: usize, end: &str| -> String {
        let all: Vec<char> = text.chars().collect();
        all.chunks(width).map(|line| line.iter().collect::<String>()).collect::<Vec<_>>().join(end)
    };
    let dump: Vec<String> = value
        .as_bytes()
        .chunks(16)
        .enumerate()
        .map(|(row, bytes)| {
            let pairs: Vec<String> = bytes.chunks(2).map(super::hex).collect();
            format!("{:08x}: {:<39}  {}\n", row * 16, pairs.join(" "), "s".repeat(bytes.len()))
        })
        .collect();
    let canonical: Vec<String> = value
        .as_bytes()
        .chunks(16)
        .enumerate()
        .map(|(row, bytes)| {
            let pairs: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{:08x}  {:<48}  |{}|\n", row * 16, pairs.join(" "), "s".repeat(bytes.len()))
        })
        .collect();
    for (encoded, text) in [
        ("base64 76", lines(&base64, 76, "\n")),
        ("base64 CRLF", lines(&base64, 64, "\r\n")),
        ("base64 in JSON", json!({"data": lines(&base64, 60, "\n")}).to_string()),
        ("base64 url", base64.replace('+', "-").replace('/', "_")),
        ("base64 percent", base64.replace('+', "%2B").replace('/', "%2F")),
        ("base64 escaped", base64.replace('/', "\\/")),
        ("xxd -p", lines(&hex, 60, "\n")),
        ("xxd", dump.concat()),
        ("hexdump -C", canonical.concat()),
        ("hex with colons", lines(&hex.to_uppercase(), 2, ":")),
        ("hex array", format!("0x{}", lines(&hex, 2, ", 0x"))),
        ("bytes", format!("\\x{}", lines(&hex, 2, "\\x"))),
        ("url", "/p%C3%A4ss%20%22word%22/+0123/and-more_of-it".to_owned()),
        ("form", "%2Fp%C3%A4ss+%22word%22%2F%2B0123%2Fand-more_of-it".to_owned()),
        ("json ascii", "/p\\u00e4ss \\\"word\\\"/+0123/and-more_of-it".to_owned()),
        ("json in json", json!(json!({"a": value}).to_string()).to_string()),
        ("octal", "/p\\303\\244ss \\\"word\\\"/+0123/and-more_of-it".to_owned()),
        ("html", "/p&#228;ss &quot;word&quot;/+0123/and-more_of-it".to_owned()),
        ("folded", lines(value, 7, "\n")),
    ] {
        let masked = own.mask(&text).into_owned();
        assert!(masked.contains("[masked: MY_SECRET]"), "{encoded}: {text}\n{masked}");
    }
}

#[test]
fn path_is_no_secret_and_a_value_that_begins_like_one_is() {
    let variables = [
        ("KEY_FILE", "/nowhere/at/all"),
        ("SIGNING_KEY", "/etc"),
        ("API_KEY", "/9j+4AAQSkZJRg"),
        ("TOKEN", "1234567"),
        ("OTHER_TOKEN", "12345678"),
    ];
    let own = secret_variables(variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())));
    let names: Vec<&str> = own.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["API_KEY", "OTHER_TOKEN"]);
}

#[test]
fn one_value_is_masked_whatever_its_length() {
    assert_eq!(mask_one("a bad key abc.", "key", "abc"), "a bad key [masked: key].");
    let text = format!("echo {}", STANDARD_NO_PAD.encode("x-key-of-a-provider"));
    assert!(mask_one(&text, "key", "key-of-a-provider").contains("[masked: key]"));
    assert_eq!(mask_one("text", "key", ""), "text");
}

/// Encodes a text in one of the ways that programs print values.
fn encode(text: &str, encoding: u8) -> String {
    let hexed = hex(text.as_bytes());
    let percent = |all: bool| -> String {
        let byte =
            |b: &u8| if all || !b.is_ascii_alphanumeric() { format!("%{b:02X}") } else { char::from(*b).to_string() };
        text.as_bytes().iter().map(byte).collect()
    };
    match encoding {
        0 => text.to_owned(),
        1 => STANDARD_NO_PAD.encode(text),
        2 => URL_SAFE_NO_PAD.encode(text),
        3 => hexed,
        4 => hexed.to_uppercase(),
        5 => percent(false),
        6 => percent(true),
        7 => json!(text).to_string(),
        _ => text.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect::<Vec<_>>().concat(),
    }
}

proptest! {
    #[test]
    fn random_secret_in_a_random_encoding_and_wrapping_is_masked(
        secret in "[!-~\u{a1}-\u{17f}]{12,60}",
        before in "[a-z ]{0,40}",
        after in "[a-z ]{0,40}",
        encoding in 0_u8..9,
        width in 20_usize..90,
        end in 0_usize..3,
    ) {
        let own = KnownSecrets::new(vec![("S".to_owned(), secret.clone())]);
        let encoded: Vec<char> = encode(&format!("{before}{secret}{after}"), encoding).chars().collect();
        let end = ["\n", "\r\n", "\n    "].get(end).copied().unwrap_or_default();
        let lines: Vec<String> = encoded.chunks(width).map(|line| line.iter().collect()).collect();
        // Programs that escape a value do not wrap it over several lines.
        let text = if encoding >= 5 { lines.concat() } else { lines.join(end) };
        let masked = own.mask(&text).into_owned();
        prop_assert!(masked.contains("[masked: S]"), "{encoding}: {text:?} -> {masked:?}");
        prop_assert!(!masked.contains(&secret));
    }
}
