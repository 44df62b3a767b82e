//! Where our libraries are: `../lib` beside the real path of this binary, so that the tree can be moved.

use std::path::{Path, PathBuf};

/// What must be there, and what is used when it is there, in preload order.
///
/// All of them, because a program built against rdma-core may have any of these as DT_NEEDED, and a
/// vendor's copy behind our libibverbs would look for hardware.
pub const LIBRARIES: [&str; 5] =
    ["libibverbs.so.1", "librdmacm.so.1", "libmlx5.so.1", "libefa.so.1", "libibumad.so.3"];

/// Why the libraries cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// Asking the kernel for our own path failed.
    #[error("cannot find out where this binary is ({0}); mount /proc")]
    Self_(std::io::Error),
    /// The directory, or the one library that every program needs, is not there.
    #[error(
        "no {missing} in {looked}; keep bin/srdma and lib/ of the distribution together \
         (`cargo xtask dist` builds them)"
    )]
    Missing { missing: &'static str, looked: String },
    /// The dynamic linker splits its variables at these characters and has no way to quote them.
    #[error("the path {0} contains '{1}', at which the dynamic linker splits; move the tree elsewhere")]
    Unusable(String, char),
    /// Environment text must be UTF-8 to be printed.
    #[error("the path {0} is not valid UTF-8; move the tree elsewhere")]
    NotText(String),
}

/// The directory of our libraries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Libraries {
    /// Absolute path.
    pub directory: String,
    /// Which of [`LIBRARIES`] it holds.
    pub present: Vec<&'static str>,
}

impl Libraries {
    /// Finds them beside the running binary.
    pub fn find() -> Result<Libraries, TreeError> {
        let binary =
            std::env::current_exe().and_then(|path| path.canonicalize()).map_err(TreeError::Self_)?;
        Libraries::beside(&binary)
    }

    /// Finds them in `../lib` of the directory of `binary`, whose links are already resolved.
    pub fn beside(binary: &Path) -> Result<Libraries, TreeError> {
        let root = binary.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
        Libraries::within(&root.join("lib"))
    }

    fn within(directory: &Path) -> Result<Libraries, TreeError> {
        let shown = directory.display().to_string();
        if !directory.join(LIBRARIES[0]).is_file() {
            return Err(TreeError::Missing { missing: LIBRARIES[0], looked: shown });
        }
        let present = LIBRARIES.into_iter().filter(|name| directory.join(name).is_file()).collect();
        Ok(Libraries { directory: usable(directory.to_owned())?, present })
    }

    /// The whole set in `root/lib`, unchecked: for an environment that is to be used elsewhere.
    pub fn elsewhere(root: &Path) -> Result<Libraries, TreeError> {
        Ok(Libraries { directory: usable(root.join("lib"))?, present: LIBRARIES.to_vec() })
    }

    /// What `LD_PRELOAD` must hold, in order.
    ///
    /// Absolute, so that a program's own DT_RPATH does not win. `LD_PRELOAD` is split at spaces too,
    /// so in a directory with a space in its name the bare names must do: they are then found through
    /// `LD_LIBRARY_PATH`, which is not split there.
    pub fn preload(&self) -> Vec<String> {
        let bare = self.directory.contains(char::is_whitespace);
        let named = |name: &&str| if bare { name.to_string() } else { format!("{}/{name}", self.directory) };
        self.present.iter().map(named).collect()
    }
}

fn usable(directory: PathBuf) -> Result<String, TreeError> {
    let text = directory
        .into_os_string()
        .into_string()
        .map_err(|path| TreeError::NotText(path.to_string_lossy().into_owned()))?;
    match text.chars().find(|c| [':', ';'].contains(c)) {
        Some(splitter) => Err(TreeError::Unusable(text, splitter)),
        None => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_directory_with_spaces_is_preloaded_by_bare_names() {
        for (root, first) in
            [("/opt/srdma", "/opt/srdma/lib/libibverbs.so.1"), ("/my tools", "libibverbs.so.1")]
        {
            let libraries = Libraries::elsewhere(Path::new(root)).unwrap();
            assert_eq!(libraries.preload()[0], first);
            assert_eq!(libraries.preload().len(), LIBRARIES.len());
        }
    }

    #[test]
    fn what_the_linker_would_split_is_refused() {
        for root in ["/a:b", "/a;b"] {
            assert!(matches!(Libraries::elsewhere(Path::new(root)), Err(TreeError::Unusable(..))), "{root}");
        }
    }

    #[test]
    fn a_missing_tree_says_where_it_looked() {
        let text = Libraries::beside(Path::new("/no/such/bin/srdma")).unwrap_err().to_string();
        assert!(text.contains("libibverbs.so.1 in /no/such/lib;"), "{text}");
    }
}
