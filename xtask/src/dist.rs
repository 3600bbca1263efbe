//! `cargo xtask dist`: the release binary as it is given away, which names none of the folders it was built in.
//!
//! Rust writes the paths of sources into a program, for panics and debuggers, and the C compiler does the same; they would tell the builder's name. Both are
//! told other names for the workspace, cargo's folder, the toolchain's and the builder's home. Then the program is searched for them, byte by byte.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// Builds it into `target/dist` and looks through it.
///
/// # Errors
/// If it does not build, or names one of the folders.
pub fn run(root: &Path) -> Result<()> {
    let folders = folders(root)?;
    // Of several that fit, the last is taken, so that what lies inside of another comes after it.
    let rust: Vec<String> =
        folders.iter().map(|(folder, name)| format!("--remap-path-prefix={}={name}", folder.display())).collect();
    let c: Vec<String> =
        folders.iter().rev().map(|(folder, name)| format!("-ffile-prefix-map={}={name}", folder.display())).collect();
    let target = root.join("target/dist");
    let status = Command::new("cargo")
        .args(["build", "--release", "--locked", "--package", "highwater", "--target-dir"])
        .arg(&target)
        // A form of RUSTFLAGS in which paths may have spaces.
        .env("CARGO_ENCODED_RUSTFLAGS", rust.join("\x1f"))
        .env("CFLAGS", c.join(" "))
        .current_dir(root)
        .status()
        .context("cannot start cargo")?;
    ensure!(status.success(), "the release build failed ({status})");
    let binary = target.join("release/highwater");
    let bytes = std::fs::read(&binary).with_context(|| format!("cannot read {}", binary.display()))?;
    let named: Vec<String> = folders.iter().filter_map(|(folder, _)| names(&bytes, folder)).collect();
    if !named.is_empty() {
        bail!("{} names folders of its builder:\n  {}", binary.display(), named.join("\n  "));
    }
    eprintln!("xtask: {} ({} bytes) names no folder of its builder", binary.display(), bytes.len());
    Ok(())
}

/// The folders that are nobody's business, with what they are called instead; what lies inside of another after it.
fn folders(root: &Path) -> Result<Vec<(PathBuf, &'static str)>> {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.components().count() > 1);
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(home.clone()?.join(".cargo")));
    let output = Command::new("rustc").args(["--print", "sysroot"]).current_dir(root).output();
    let output = output.context("cannot start rustc")?;
    ensure!(output.status.success(), "`rustc --print sysroot` failed ({})", output.status);
    let sysroot = String::from_utf8(output.stdout).context("the toolchain's path is no text")?;
    let mut folders = vec![(root.to_path_buf(), "/highwater"), (PathBuf::from(sysroot.trim()), "/toolchain")];
    folders.extend(home.map(|home| (home, "/home")));
    folders.extend(cargo.map(|cargo| (cargo, "/cargo")));
    folders.sort_by_key(|(folder, _)| folder.components().count());
    Ok(folders)
}

/// Where a program names something in that folder, with what stands around it.
fn names(bytes: &[u8], folder: &Path) -> Option<String> {
    let needle = format!("{}/", folder.display()).into_bytes();
    let at = bytes.windows(needle.len()).position(|window| window == needle)?;
    let around = &bytes[at..bytes.len().min(at + 120)];
    let text: Vec<u8> = around.iter().copied().take_while(|byte| byte.is_ascii_graphic()).collect();
    Some(format!("{} at byte {at}", String::from_utf8_lossy(&text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_named_is_found_with_what_it_names() {
        let bytes = b"\x00\x01/home/me/own/src/a.rs\x00/home/meadow";
        assert_eq!(names(bytes, Path::new("/home/me")), Some("/home/me/own/src/a.rs at byte 2".into()));
        assert_eq!(names(bytes, Path::new("/home/you")), None);
        assert_eq!(names(b"/home/meadow/x", Path::new("/home/me")), None);
    }
}
