//! Images of a typed message: files that the text names as `@PATH`, and the image of the clipboard, which a program of
//! the system reads.

use std::env;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

use rye_engine::event::{Delivery, UserInput};
use rye_engine::image::{MAX_IMAGE_BYTES, ValidatedImage};
use rye_engine::process::find_program;
use rye_engine::rooted_dir::RootedDir;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::json::ChatResponse;
use super::requests::{ENDED, RequestHandler};

/// Extensions of the files that are sent as images.
const EXTENSIONS: [&str; 5] = ["png", "jpg", "jpeg", "gif", "webp"];
/// The folder of pasted images, in the project.
const FOLDER: &str = ".ai/state/chat";

/// Returns the paths of the existing image files that the words `@PATH` of a text name. Each `PATH` is relative to
/// `project`.
///
/// # Errors
/// A path in the project is a symbolic link to a file outside the project. Such an image is not sent, because the text
/// shows the user only the name of the link.
pub fn image_words(text: &str, project: &Path) -> Result<Vec<PathBuf>, String> {
    let named = text.split_whitespace().filter_map(|word| word.strip_prefix('@'));
    let files = named.filter(|path| has_image_extension(path)).map(|path| project.join(path));
    let files: Vec<PathBuf> = files.filter(|file| file.is_file()).collect();
    for file in &files {
        if let Some(target) = link_out_of(project, file) {
            let (name, target) = (file.strip_prefix(project).unwrap_or(file).display(), target.display());
            return Err(format!(
                "`@{name}` was not sent, because it is a link to a file outside the project; to send that file, type \
                 `@{target}`"
            ));
        }
    }
    Ok(files)
}

/// Returns the target of a link in the project, if the target is outside the project. `None` for a path that itself
/// names a place outside the project, because the user has chosen that place.
fn link_out_of(project: &Path, file: &Path) -> Option<PathBuf> {
    let inside = file.strip_prefix(project).ok()?;
    if inside.components().any(|part| part == Component::ParentDir) {
        return None;
    }
    let target = file.canonicalize().ok()?;
    let is_inside = project.canonicalize().is_ok_and(|project| target.starts_with(project));
    (!is_inside).then_some(target)
}

/// Returns each path that a word `@PATH` names and that looks like a file but does not exist. The paths are relative to
/// the project.
fn missing_files<'t>(text: &'t str, project: &Path) -> Vec<&'t str> {
    let named = text.split_whitespace().filter_map(|word| word.strip_prefix('@'));
    let paths = named.map(|path| path.trim_end_matches(['.', ',', ';', ':', '?', '!']));
    let is_path = |path: &&str| {
        let is_plain = path.chars().all(|c| c.is_alphanumeric() || matches!(c, '/' | '.' | '-' | '_' | '~'));
        is_plain && Path::new(path).extension().is_some() && !path.starts_with('.')
    };
    paths.filter(is_path).filter(|path| !project.join(path).exists()).collect()
}

/// Returns a note for each word `@PATH` that looks like a path but names no file of the project.
pub fn missing_file_notes(text: &str, project: &Path) -> Vec<String> {
    let note = |path: &str| format!("`@{path}` names no file of the project: the text was sent as it is");
    missing_files(text, project).into_iter().map(note).collect()
}

/// Returns the note that names the files of sent images; `None` if there are none.
pub fn sent_images_note(names: &[String]) -> Option<String> {
    let noun = if names.len() == 1 { "the image" } else { "the images" };
    (!names.is_empty()).then(|| format!("sent with {noun}: {}", names.join(", ")))
}

/// Returns the names of files without their folders.
pub fn file_names(files: &[PathBuf]) -> Vec<String> {
    files.iter().filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect()
}

impl RequestHandler {
    /// Adds the images that the words `@PATH` of a typed message name. Returns the message, and notes for the user: the
    /// names of the images, and the words that name no file.
    ///
    /// # Errors
    /// Returns the reason why an image cannot be sent.
    pub async fn attach_named_images(&self, input: UserInput) -> Result<(UserInput, Vec<String>), String> {
        let project = &self.spaces.project;
        let (images, missing) = (image_words(&input.text, project)?, missing_file_notes(&input.text, project));
        let notes = sent_images_note(&file_names(&images)).into_iter().chain(missing).collect();
        Ok((self.read_images(input, &images).await?, notes))
    }

    /// Submits a typed message with the images that it names. The data of the response contains the notes for the user.
    pub async fn submit_typed(&self, input: UserInput, delivery: Delivery) -> ChatResponse {
        let send = async {
            let (input, notes) = self.attach_named_images(input).await?;
            let id = self.control.submit(input, delivery).ok_or(ENDED)?;
            Ok(json!({"input": id, "notes": notes}))
        };
        ChatResponse::of_prompt(send.await)
    }
}

fn has_image_extension(path: &str) -> bool {
    let extension = Path::new(path).extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    EXTENSIONS.contains(&extension.to_ascii_lowercase().as_str())
}

/// Returns `@PATH`, the word that attaches an image, if the pasted text is the path of an image file; otherwise `None`.
/// A terminal pastes such a path when the user drops a file on the terminal.
pub fn dropped_image(pasted: &str) -> Option<String> {
    let path = pasted.trim().trim_matches(['\'', '"']);
    let path = path.strip_prefix("file://").unwrap_or(path);
    let is_word = !path.contains(char::is_whitespace) && path.starts_with('/');
    (is_word && has_image_extension(path) && Path::new(path).is_file()).then(|| format!("@{path} "))
}

/// Stores the image of the clipboard in the project and returns its path, relative to the project.
///
/// # Errors
/// Returns the reason and what the user can do instead.
pub fn paste_image(project: &Path) -> Result<String, String> {
    let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    let program = ClipboardProgram::of_system(&is_set)?;
    let bytes = program.read(project)?;
    ValidatedImage::read(bytes.clone())
        .map_err(|error| format!("the image of the clipboard cannot be sent: {error}"))?;
    let path = format!("{FOLDER}/pasted-{}.png", hash_prefix(&bytes));
    let stored = RootedDir::open(project).and_then(|root| root.replace(Path::new(&path), &bytes));
    stored.map_err(|error| format!("the image of the clipboard cannot be stored: {error}"))?;
    Ok(path)
}

fn hash_prefix(bytes: &[u8]) -> String {
    rye_compiler::plan::hex(&Sha256::digest(bytes)).chars().take(12).collect()
}

/// A program that writes the image of the clipboard to its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClipboardProgram {
    Wayland,
    X11,
    MacOs,
}

impl ClipboardProgram {
    /// Selects the program that reads the clipboard, by the environment variables of the desktop session. Returns a
    /// message for the user if there is no clipboard.
    fn of_system(is_set: &dyn Fn(&str) -> bool) -> Result<Self, String> {
        if is_set("WAYLAND_DISPLAY") {
            Ok(Self::Wayland)
        } else if is_set("DISPLAY") {
            Ok(Self::X11)
        } else if cfg!(target_os = "macos") && !is_set("SSH_CONNECTION") {
            Ok(Self::MacOs)
        } else if is_set("SSH_CONNECTION") {
            Err("this key reads the clipboard of the machine that runs rye, which SSH does not share: copy the image to \
                 this machine (`scp`) and type `@FILE`"
                .to_owned())
        } else {
            Err("no clipboard: neither $WAYLAND_DISPLAY nor $DISPLAY is set; type `@FILE` to send an image".to_owned())
        }
    }

    fn command(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Wayland => ("wl-paste", &["--no-newline", "--type", "image/png"]),
            Self::X11 => ("xclip", &["-selection", "clipboard", "-t", "image/png", "-o"]),
            Self::MacOs => ("pngpaste", &["-"]),
        }
    }

    fn read(self, project: &Path) -> Result<Vec<u8>, String> {
        let (program, arguments) = self.command();
        let no_program = |reason: &str| {
            format!(
                "the clipboard is read with `{program}`, which cannot be started ({reason}): install it, or type `@FILE`"
            )
        };
        let path = find_program(program, project).ok_or_else(|| no_program("it is not in `PATH`"))?;
        let started = Command::new(path)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .output();
        let output = started.map_err(|error| no_program(&error.to_string()))?;
        if !output.status.success() || output.stdout.is_empty() {
            return Err("the clipboard has no image".to_owned());
        }
        if output.stdout.len() as u64 > MAX_IMAGE_BYTES {
            return Err(format!("the image of the clipboard is larger than {} MiB", MAX_IMAGE_BYTES >> 20));
        }
        Ok(output.stdout)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn word_that_names_a_link_out_of_the_project_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let (project, private) = (place.path().join("p"), place.path().join("private.png"));
        std::fs::create_dir(&project).unwrap();
        std::fs::write(&private, "x").unwrap();
        std::fs::write(project.join("own.png"), "x").unwrap();
        std::os::unix::fs::symlink(&private, project.join("logo.png")).unwrap();
        std::os::unix::fs::symlink(place.path(), project.join("folder")).unwrap();
        std::os::unix::fs::symlink("own.png", project.join("inside.png")).unwrap();
        for name in ["logo.png", "folder/private.png"] {
            let refused = image_words(&format!("see @{name}"), &project).unwrap_err();
            assert!(refused.contains(&format!("`@{name}`")) && refused.contains("outside the project"), "{refused}");
        }
        assert_eq!(image_words("@inside.png", &project).unwrap(), [project.join("inside.png")]);
        // The user names the place itself.
        for named in [private.display().to_string(), "../private.png".to_owned()] {
            assert_eq!(image_words(&format!("@{named}"), &project).unwrap().len(), 1, "{named}");
        }
    }

    #[test]
    fn words_that_look_like_files_and_name_none_are_found() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.rs"), "").unwrap();
        let text = "see @a.rs, @b.rs, @src/c.md. and @user, @app.get('/x') or me@example.org";
        assert_eq!(missing_files(text, folder.path()), ["b.rs", "src/c.md"]);
    }

    #[test]
    fn words_that_name_image_files_are_images() {
        let place = tempfile::tempdir().unwrap();
        for name in ["a.png", "b.JPG", "c.txt"] {
            std::fs::write(place.path().join(name), "x").unwrap();
        }
        let found = image_words("look at @a.png and @b.JPG, not @c.txt, @none.png or a.png", place.path()).unwrap();
        assert_eq!(found, [place.path().join("a.png")], "a comma belongs to the word");
        let found = image_words("@b.JPG @a.png", place.path()).unwrap();
        assert_eq!(found.len(), 2);
        let dropped = place.path().join("a.png").display().to_string();
        assert_eq!(dropped_image(&format!("'{dropped}'\n")), Some(format!("@{dropped} ")));
        assert_eq!(dropped_image("a.png"), None);
        assert_eq!(dropped_image(&format!("see {dropped}")), None);
    }

    #[test]
    fn program_depends_on_the_session_and_ssh_is_explained() {
        let of = |set: &[&str]| ClipboardProgram::of_system(&|name| set.contains(&name));
        assert_eq!(of(&["WAYLAND_DISPLAY", "DISPLAY"]).unwrap().command().0, "wl-paste");
        assert_eq!(of(&["DISPLAY"]).unwrap().command().0, "xclip");
        assert!(of(&["SSH_CONNECTION"]).unwrap_err().contains("type `@FILE`"));
        assert!(cfg!(target_os = "macos") || of(&[]).unwrap_err().contains("$DISPLAY"));
    }
}
