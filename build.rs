//! Build info for `tidegate --version`: what the binary was built from, for and with.
//!
//! The commit is that of `TIDEGATE_COMMIT`, else of the folder's git repository, which is asked by release builds
//! only: others would be built anew after each commit.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=TIDEGATE_COMMIT");
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    if is_release && let Some(folder) = output("git", &["rev-parse", "--absolute-git-dir"]) {
        println!("cargo::rerun-if-changed={folder}/logs/HEAD");
    }
    let given = env::var("TIDEGATE_COMMIT").ok().filter(|commit| !commit.trim().is_empty());
    let asked =
        || output("git", &["rev-parse", "--short=12", "HEAD"]).filter(|_| is_release && is_own_repository());
    let commit = given.or_else(asked).unwrap_or_else(|| "unknown".to_owned());
    let rustc = env::var("RUSTC").ok().and_then(|rustc| output(&rustc, &["--version"]));
    let known = |name: &str| env::var(name).unwrap_or_else(|_| "unknown".to_owned());
    println!("cargo::rustc-env=TIDEGATE_COMMIT={}", commit.trim());
    println!("cargo::rustc-env=TIDEGATE_TARGET={}", known("TARGET"));
    println!("cargo::rustc-env=TIDEGATE_RUSTC={}", rustc.unwrap_or_else(|| "unknown".to_owned()));
    println!("cargo::rustc-env=TIDEGATE_PROFILE={}", known("PROFILE"));
}

/// Whether the repository is that of this crate, and not one that the sources were unpacked in.
fn is_own_repository() -> bool {
    output("git", &["ls-files", "--error-unmatch", "Cargo.toml"]).is_some()
}

/// The first line that a program prints, if it does well.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.lines().next()?.trim().to_owned();
    (output.status.success() && !line.is_empty()).then_some(line)
}
