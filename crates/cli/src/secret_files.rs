//! Files with tokens and secrets: one in a line, without the white space around it; empty lines and those that begin with `#` are passed over.
//!
//! A file that holds none is refused, always: taken for "no tokens", an emptied file would let everybody in.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, bail};
use rustix::fs::OFlags;

/// The longest file that is read, in bytes: a certificate with its chain and a thousand tokens are shorter.
pub(crate) const FILE_MAX_BYTES: u64 = 1 << 20;

/// The most tokens in a file. Every request is compared with all of them.
pub(crate) const TOKENS_MAX: usize = 1000;

/// What a file holds.
///
/// # Errors
/// If it cannot be read, or is longer than [`FILE_MAX_BYTES`].
pub(crate) fn bytes(path: &Path, what: &str) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // A pipe would be waited for, for ever and in silence, each time that the file is looked at.
    let without_waiting = i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag of the kernel's");
    let file = File::options().read(true).custom_flags(without_waiting).open(path);
    let file = file.with_context(|| format!("cannot open the file of {what}, {}", path.display()))?;
    let kind = file.metadata().with_context(|| format!("cannot look at the file of {what}, {}", path.display()))?;
    if !kind.is_file() {
        bail!(
            "the file of {what}, {}, is none: an ordinary file is wanted, not a pipe, a device or a folder",
            path.display()
        );
    }
    let mut limited = file.take(FILE_MAX_BYTES + 1);
    limited.read_to_end(&mut bytes).with_context(|| format!("cannot read the file of {what}, {}", path.display()))?;
    if bytes.len() as u64 > FILE_MAX_BYTES {
        bail!("the file of {what}, {}, has more than {FILE_MAX_BYTES} bytes: is it the right one?", path.display());
    }
    Ok(bytes)
}

/// The lines of a file that say something, at least one.
///
/// # Errors
/// As [`bytes`]; also if it is no text or has no such line.
pub(crate) fn lines(path: &Path, what: &str) -> anyhow::Result<Vec<String>> {
    let text = String::from_utf8(bytes(path, what)?)
        .ok()
        .with_context(|| format!("the file of {what}, {}, is not UTF-8 text", path.display()))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let lines: Vec<String> = lines.map(str::to_string).collect();
    if lines.is_empty() {
        bail!("the file of {what}, {}, holds none, where at least one is wanted, one in a line", path.display());
    }
    Ok(lines)
}

/// The tokens of a file.
///
/// # Errors
/// As [`lines`]; also if there are more than [`TOKENS_MAX`], or one that no request could carry.
pub(crate) fn tokens(path: &Path) -> anyhow::Result<Vec<String>> {
    let tokens = lines(path, "tokens")?;
    if tokens.len() > TOKENS_MAX {
        bail!("the file of tokens, {}, holds {}, where at most {TOKENS_MAX} are taken", path.display(), tokens.len());
    }
    // The token itself is not said: what is logged is read by others.
    if let Some(at) = tokens.iter().position(|token| !token.bytes().all(|byte| byte.is_ascii_graphic())) {
        bail!(
            "token {} of the file {} is none: it must be made of printable characters of ASCII without white space, one token in a line",
            at + 1,
            path.display()
        );
    }
    Ok(tokens)
}

/// What to say of a file with secrets that others than its owner may read or write; `None` if nobody else may, or it is not there.
pub(crate) fn exposed(path: &Path) -> Option<String> {
    let mode = std::fs::metadata(path).ok()?.mode() & 0o777;
    (mode & 0o077 != 0).then(|| {
        let path = path.display();
        format!("{path} holds secrets and has mode {mode:03o}, which lets others in: run `chmod 600 {path}`")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_or_a_folder_is_refused_at_once() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.is_ok_and(|status| status.success()), "a pipe can be made");
        for path in [pipe.as_path(), folder.path(), Path::new("/dev/zero")] {
            let refused = bytes(path, "tokens").expect_err("no file").to_string();
            assert!(refused.contains("an ordinary file is wanted"), "{refused}");
        }
    }

    fn read(content: impl AsRef<[u8]>) -> Result<Vec<String>, String> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), content).expect("content");
        tokens(file.path()).map_err(|error| {
            let text = format!("{error:#}");
            assert!(text.contains(&file.path().display().to_string()), "an error names the file: {text}");
            text
        })
    }

    #[test]
    fn lines_that_say_something_are_tokens() {
        assert_eq!(read("# ours\n\n a1 \r\nb2\n#c3\n"), Ok(vec!["a1".to_string(), "b2".to_string()]));
    }

    #[test]
    fn what_holds_no_token_is_refused_and_says_why() {
        for (content, wanted) in [
            (&b""[..], "holds none"),
            (b"# only\n", "holds none"),
            (b"good\ntwo words\n", "token 2"),
            (b"\xff\xfe", "UTF-8"),
        ] {
            let error = read(content).expect_err("no tokens");
            assert!(error.contains(wanted), "{error}");
        }
        assert_eq!(read("t\n".repeat(TOKENS_MAX)).map(|tokens| tokens.len()), Ok(TOKENS_MAX));
        assert!(read("t\n".repeat(TOKENS_MAX + 1)).expect_err("too many").contains("at most 1000"));
        let long = read(vec![b'a'; FILE_MAX_BYTES as usize + 1]).expect_err("too long");
        assert!(long.contains("more than 1048576 bytes"), "{long}");
    }
}
