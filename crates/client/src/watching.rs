//! Where a running process can be asked for its counters: the directory in which its devices put their sockets.
//!
//! `SRDMA_STATS_SOCKET` names it, or is `off`. Otherwise it is `srdma` in the user's runtime directory
//! (XDG Base Directory Specification), or `/tmp/srdma-UID` where the session has none.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The variable.
pub const VARIABLE: &str = "SRDMA_STATS_SOCKET";

/// The directory for a device of this process; `None` if it is not to be watched. `get` gives the value of a
/// variable, which whoever makes `Options` of the environment has found to make sense.
pub fn directory(get: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    match get(VARIABLE).filter(|value| !value.is_empty()) {
        Some(value) => value.starts_with('/').then(|| value.into()),
        None => usual(user(), get).into_iter().next(),
    }
}

/// Every directory in which devices of this user's processes may be, whatever their environment is; for root, of
/// every user's.
pub fn directories(get: &dyn Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    let named = get(VARIABLE).filter(|value| value.starts_with('/')).map(PathBuf::from);
    let mut all: Vec<PathBuf> = named.into_iter().chain(usual(user(), get)).collect();
    let runtime = Path::new("/run/user");
    match user() {
        0 => {
            all.extend(entries(runtime).map(|user| user.join("srdma")));
            let name = |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned());
            let ours = |path: &PathBuf| name(path).is_some_and(|name| name.starts_with("srdma-"));
            all.extend(entries(Path::new("/tmp")).filter(ours));
        }
        user => all.push(runtime.join(user.to_string()).join("srdma")),
    }
    all.sort();
    all.dedup();
    all.retain(|path| path.is_dir());
    all
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn user() -> u32 {
    // SAFETY: no preconditions, cannot fail.
    unsafe { libc::geteuid() }
}

/// Where `user`'s are, best first. A runtime directory that another user left in the environment is none.
fn usual(user: u32, get: &dyn Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    let runtime = get("XDG_RUNTIME_DIR").filter(|value| value.starts_with('/')).map(PathBuf::from);
    let owned =
        |path: &PathBuf| std::fs::metadata(path).is_ok_and(|found| found.is_dir() && found.uid() == user);
    let runtime = runtime.filter(owned).map(|path| path.join("srdma"));
    runtime.into_iter().chain([PathBuf::from(format!("/tmp/srdma-{user}"))]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_names_the_directory_or_forbids_it() {
        let set = |value: &'static str| move |name: &str| (name == VARIABLE).then(|| value.to_owned());
        let fallback = PathBuf::from(format!("/tmp/srdma-{}", user()));
        assert_eq!(directory(&set("off")), None);
        assert_eq!(directory(&set("/x/y")), Some("/x/y".into()));
        assert_eq!(directory(&set("")), Some(fallback.clone()));
        let runtime = |name: &str| (name == "XDG_RUNTIME_DIR").then(|| "/nowhere/at/all".to_owned());
        assert_eq!(directory(&runtime), Some(fallback), "one that is not there is none");
    }
}
