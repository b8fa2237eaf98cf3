//! Tests of keys, signatures and the trust store.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

const NOW: &str = "2026-02-14T00:27:54Z";

fn identity_from_seed(seed: u8) -> SigningIdentity {
    SigningIdentity::new(SigningKey::from_bytes(&[seed; 32])).unwrap()
}

fn trust_store_of(who: &SigningIdentity) -> TrustStore {
    let mut store = TrustStore::default();
    store.add(who.key.verifying_key()).unwrap();
    store
}

#[test]
fn signed_file_verifies_and_re_signing_keeps_its_size() {
    let me = identity_from_seed(1);
    for (comment, start) in [
        (CommentSyntax::Markup, "<!-- rye:signed:"),
        (CommentSyntax::Hash, "# rye:signed:"),
        (CommentSyntax::Slashes, "// rye:signed:"),
    ] {
        let signed = me.sign_file(b"line 1\r\nline 2", comment, NOW);
        assert!(signed.starts_with(start.as_bytes()));
        assert_eq!(without_signature_line(&signed), b"line 1\r\nline 2");
        let signature = trust_store_of(&me).verify_file(&signed).unwrap();
        assert_eq!(signature, SignatureStatus::Signed { key_id: me.key_id().into(), timestamp: NOW.into() });
        assert_eq!(me.sign_file(&signed, comment, NOW), signed);
    }
}

#[test]
fn any_changed_byte_fails_verification() {
    let me = identity_from_seed(1);
    let trust = trust_store_of(&me);
    let signed = me.sign_file(b"# Title\n", CommentSyntax::Markup, NOW);
    for at in 0..signed.len() {
        let mut changed = signed.clone();
        if let Some(byte) = changed.get_mut(at) {
            *byte ^= 1;
        }
        // A line that no longer parses as a signature makes the file unsigned; it never counts as signed.
        assert!(!matches!(trust.verify_file(&changed), Ok(SignatureStatus::Signed { .. })), "byte {at}");
    }
    let longer = [signed.as_slice(), b"x"].concat();
    assert_eq!(trust.verify_file(&longer), Err(SignatureError::Altered));
}

#[test]
fn untrusted_keys_and_malformed_lines_are_refused() {
    let (me, other) = (identity_from_seed(1), identity_from_seed(2));
    let signed = other.sign_file(b"x", CommentSyntax::Hash, NOW);
    let unknown = SignatureError::UnknownKey { key_id: other.key_id().into() };
    assert_eq!(trust_store_of(&me).verify_file(&signed), Err(unknown));
    let borrowed = String::from_utf8(signed).unwrap().replace(other.key_id(), me.key_id());
    assert_eq!(
        trust_store_of(&me).verify_file(borrowed.as_bytes()),
        Err(SignatureError::Forged { key_id: me.key_id().into() })
    );
    assert_eq!(trust_store_of(&me).verify_file(b"# rye:signed:oops\nx"), Err(SignatureError::Malformed));
    assert_eq!(trust_store_of(&me).verify_file(b"# Title\nrye:signed:a:b:c:d"), Ok(SignatureStatus::Unsigned));
    assert_eq!(trust_store_of(&me).verify_file(b"\xff\xfe\nx"), Ok(SignatureStatus::Unsigned));
    assert_eq!(trust_store_of(&me).verify_file(b""), Ok(SignatureStatus::Unsigned));
}

#[test]
fn weak_key_is_refused() {
    let mut identity_point = [0_u8; 32];
    if let Some(first) = identity_point.first_mut() {
        *first = 1;
    }
    let weak = VerifyingKey::from_bytes(&identity_point).unwrap();
    assert!(matches!(TrustStore::default().add(weak), Err(KeyError::Weak)));
}

#[test]
fn generated_key_is_private_and_reused() {
    let home = tempfile::tempdir().unwrap();
    let keys = KeyFolder::of_user_space(home.path());
    assert!(keys.load().unwrap().is_none());
    let made = keys.load_or_generate().unwrap();
    let again = keys.load_or_generate().unwrap();
    assert_eq!(made.key_id(), again.key_id());
    let private = keys.folder().join("private.pem");
    assert_eq!(fs::metadata(&private).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(keys.folder()).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::read_to_string(keys.folder().join("public.pem")).unwrap(), made.public_pem());
    assert!(keys.trust_store().unwrap().trusts(made.key_id()));
    assert!(!format!("{made:?}").contains("key:"));

    fs::set_permissions(&private, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(keys.load(), Err(KeyError::Exposed { .. })));
    fs::set_permissions(&private, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&private, "no key").unwrap();
    let e = keys.load().unwrap_err();
    assert!(matches!(e, KeyError::NotAKey { .. }) && !e.to_string().contains("no key in"));
}

#[test]
fn racing_processes_agree_on_one_key() {
    let home = tempfile::tempdir().unwrap();
    let keys = KeyFolder::of_user_space(home.path());
    let ids: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..4).map(|_| scope.spawn(|| keys.load_or_generate().map(|i| i.key_id().to_owned()))).collect();
        threads.into_iter().map(|t| t.join().unwrap().unwrap()).collect()
    });
    let on_disk = keys.load().unwrap().unwrap();
    assert!(ids.iter().all(|id| id == on_disk.key_id()));
}

#[test]
fn trusted_keys_are_read_from_the_user_space() {
    let home = tempfile::tempdir().unwrap();
    let keys = KeyFolder::of_user_space(home.path());
    let other = identity_from_seed(2);
    assert_eq!(keys.trust(other.public_pem()).unwrap(), other.key_id());
    assert_eq!(keys.trust(other.public_pem()).unwrap(), other.key_id());
    assert!(keys.trust("-----BEGIN PUBLIC KEY-----\nnonsense\n-----END PUBLIC KEY-----\n").is_err());
    let ids: Vec<String> = keys.trust_store().unwrap().0.into_keys().collect();
    assert_eq!(ids, [other.key_id()]);
}

#[test]
fn trusted_keys_follow_every_change_of_the_key_files() {
    let base = tempfile::tempdir().unwrap();
    let keys = KeyFolder::of_user_space(base.path());
    let trusted = TrustedKeys::new(keys.clone());
    let ids = |store: &TrustStore| store.0.keys().cloned().collect::<Vec<String>>();
    let is_current = || assert_eq!(ids(&trusted.current().unwrap()), ids(&keys.trust_store().unwrap()));
    is_current();
    keys.load_or_generate().unwrap();
    is_current();
    let other = SigningIdentity::ephemeral().unwrap();
    // A change within the resolution of time stamps is read again; a later one is compared by its time stamp.
    for pause in [0, 40, 40] {
        std::thread::sleep(std::time::Duration::from_millis(pause));
        let id = keys.trust(other.public_pem()).unwrap();
        is_current();
        assert!(trusted.current().unwrap().trusts(&id));
        std::thread::sleep(std::time::Duration::from_millis(pause));
        is_current();
        assert!(keys.revoke(&id).unwrap());
        assert!(!trusted.current().unwrap().trusts(&id));
    }
    let private = keys.folder().join("private.pem");
    fs::set_permissions(&private, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(trusted.current(), Err(KeyError::Exposed { .. })));
}
