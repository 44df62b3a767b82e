//! `srdma run` and `srdma env` as a user meets them: a tree that was moved, programs that start, and
//! the one line that says why one does not.
#![allow(clippy::unwrap_used)]

mod support;

use std::os::unix::fs::{symlink, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Output};
use support::{binary_of, namespaces_possible, plant_tree, stderr, stdout, Namespaces, Scratch};

/// `srdma` of the tree at `root`, in an environment without our variables, with an address that any
/// machine has.
fn srdma(root: &Path) -> Command {
    let mut command = Command::new(binary_of(root));
    command.env_clear().env("PATH", "/usr/bin:/bin").env("SRDMA_ADDR", "127.0.0.1");
    command
}

fn run(root: &Path, words: &[&str]) -> Output {
    srdma(root).arg("run").args(words).output().unwrap()
}

const LIBRARIES: [&str; 5] =
    ["libibverbs.so.1", "librdmacm.so.1", "libmlx5.so.1", "libefa.so.1", "libibumad.so.3"];

#[test]
fn a_moved_tree_puts_its_libraries_before_a_program() {
    for name in ["plain", "with two spaces", "dollar$sign"] {
        let scratch = Scratch::new(name);
        let (before, after) = (scratch.0.join("before"), scratch.0.join("after"));
        plant_tree(&before);
        std::fs::rename(&before, &after).unwrap();
        let output = run(&after, &["--", "cat", "/proc/self/maps"]);
        let (maps, told) = (stdout(&output), stderr(&output));
        assert!(output.status.success() && told.is_empty(), "{name}: {told}");
        for library in LIBRARIES {
            let path = after.join("lib").join(library).display().to_string();
            assert!(maps.contains(&path), "{name}: {path} is not mapped:\n{maps}");
        }
    }
}

#[test]
fn a_link_to_the_binary_finds_the_tree_it_points_into() {
    let scratch = Scratch::new("linked");
    plant_tree(&scratch.0.join("opt"));
    let link = scratch.0.join("srdma-link");
    symlink(binary_of(&scratch.0.join("opt")), &link).unwrap();
    let output =
        Command::new(&link).env("SRDMA_ADDR", "127.0.0.1").args(["run", "cat", "/proc/self/maps"]).output();
    assert!(stdout(&output.unwrap()).contains("opt/lib/libibverbs.so.1"));
}

#[test]
fn the_program_ends_as_if_started_alone() {
    let scratch = Scratch::new("ends");
    plant_tree(&scratch.0);
    let output = run(&scratch.0, &["--", "sh", "-c", "echo out; echo err >&2; exit 37"]);
    assert_eq!(output.status.code(), Some(37));
    assert_eq!((stdout(&output), stderr(&output)), ("out\n".into(), "err\n".into()));
    let output = run(&scratch.0, &["sh", "-c", "kill -TERM $$"]);
    assert_eq!(output.status.signal(), Some(libc::SIGTERM));
    // A program that writes to a closed pipe dies of it, as it does elsewhere.
    let output = run(&scratch.0, &["sh", "-c", "yes | head -n 1; cat /proc/self/status | grep SigIgn"]);
    let ignored = stdout(&output).lines().last().and_then(|line| line.split('\t').nth(1).map(str::to_owned));
    let ignored = u64::from_str_radix(&ignored.unwrap(), 16).unwrap();
    assert_eq!(ignored & 1 << (libc::SIGPIPE - 1), 0);
}

#[test]
fn options_arrive_as_variables_and_the_rest_as_arguments() {
    let scratch = Scratch::new("options");
    plant_tree(&scratch.0);
    let line =
        "--paths 16 --selector rr --loss 1% --seed 9 --order strict --stats s-%p.json --addr 127.0.0.1 \
                --no-gso -- sh -c";
    let mut words: Vec<&str> = line.split_whitespace().collect();
    words.extend(["env | grep ^SRDMA_ | sort; echo $0 $1", "--paths", "--loss"]);
    let output = srdma(&scratch.0).current_dir(&scratch.0).arg("run").args(words).output().unwrap();
    let stats = scratch.0.canonicalize().unwrap().join("s-%p.json");
    let expected = format!(
        "SRDMA_ADDR=127.0.0.1\nSRDMA_LOSS=1\nSRDMA_NO_GSO=1\nSRDMA_ORDER=strict\nSRDMA_PATHS=16\n\
         SRDMA_SEED=9\nSRDMA_SELECTOR=rr\nSRDMA_STATS={}\n--paths --loss\n",
        stats.display()
    );
    assert_eq!(stdout(&output), expected, "{}", stderr(&output));
}

#[test]
fn what_a_shell_evaluates_is_what_run_sets() {
    let scratch = Scratch::new("evaluated it's");
    plant_tree(&scratch.0);
    let show = "env | grep -E '^(SRDMA_|LD_)' | sort";
    let through_run = run(&scratch.0, &["--paths", "4", "--", "sh", "-c", show]);
    let line = format!("eval \"$(\"$1\" env --paths 4)\"; {show}");
    let binary = binary_of(&scratch.0);
    let through_env = Command::new("sh")
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("SRDMA_ADDR", "127.0.0.1")
        .args(["-ec", &line, "sh"])
        .arg(&binary)
        .output()
        .unwrap();
    assert!(stdout(&through_run).contains("SRDMA_PATHS=4"));
    assert_eq!(stdout(&through_run), stdout(&through_env), "{}", stderr(&through_env));
    let printed = run(&scratch.0, &["--paths", "4", "--print", "--", "sh", "-c", "echo 'a  b'"]);
    let evaluated = Command::new("sh").args(["-c", &stdout(&printed)]).output().unwrap();
    assert_eq!(stdout(&evaluated), "a  b\n");
}

#[test]
fn whatever_is_wrong_is_one_line_with_what_to_do() {
    let scratch = Scratch::new("wrong");
    let root = &scratch.0;
    plant_tree(root);
    let file = |name: &str, bytes: &[u8], mode: u32| {
        let path = root.join(name);
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.display().to_string()
    };
    // The head of an x86-64 (or aarch64) program without any program header.
    let mut elf = std::fs::read(support::SRDMA).unwrap()[..64].to_vec();
    elf[56..58].fill(0);
    let fixed = file("fixed", &elf, 0o755);
    elf[4] = 1;
    let foreign = file("foreign", &elf, 0o755);
    let plain = file("plain", b"text", 0o644);
    let script = file("script", b"#!/no/such/interpreter\n", 0o755);
    let directory = root.display().to_string();
    for (words, code, said) in [
        (vec!["--", "no-such-program"], 127, "no-such-program: no such program in PATH; install it"),
        (vec!["--", "./no-such-program"], 127, "./no-such-program: no such file"),
        (vec!["--", &directory], 126, "is a directory"),
        (vec!["--", &plain], 126, "is not executable; try `chmod +x`"),
        (vec!["--", &script], 126, "its interpreter /no/such/interpreter does not exist"),
        (vec!["--", &fixed], 126, "is statically linked"),
        (vec!["--", &foreign], 126, "another kind of processor"),
        (vec!["--paths", "0", "--", "true"], 2, "1..=256"),
        (vec!["--stats", "/no/such/s.json", "--", "true"], 2, "there is no directory /no/such"),
        (vec!["--addr", "203.0.113.77", "--", "true"], 2, "no address of this host"),
        (vec![], 2, "<PROGRAM>"),
    ] {
        let output = run(root, &words);
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {told}");
        assert!(told.starts_with("srdma: ") && told.contains(said), "{words:?}: {told}");
        assert_eq!((told.lines().count(), stdout(&output).len()), (1, 0), "{words:?}: {told}");
    }
    let output = srdma(root).env("SRDMA_ADDR", "203.0.113.77").args(["run", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("SRDMA_ADDR=203.0.113.77 is no address of this host"));
    let output = srdma(root).env("SRDMA_PATHS", "0").args(["run", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("SRDMA_PATHS=0 in the environment is refused: it must be"));
    let output = srdma(root).env("SRDMA_PATHS", "0").args(["run", "--paths", "1", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    std::fs::remove_file(root.join("lib/libibverbs.so.1")).unwrap();
    let output = run(root, &["true"]);
    let looked = format!("no libibverbs.so.1 in {}", root.canonicalize().unwrap().join("lib").display());
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains(&looked), "{}", stderr(&output));
}

#[test]
fn a_program_that_runs_as_another_user_is_refused() {
    if !namespaces_possible("a_program_that_runs_as_another_user_is_refused") {
        return;
    }
    const NOBODY: u32 = 65_534;
    let scratch = Scratch::new("setuid");
    plant_tree(&scratch.0);
    let program = scratch.0.join("true");
    std::fs::copy("/bin/true", &program).unwrap();
    for (mode, user, code) in
        [(0o755, NOBODY, 0), (0o4755, NOBODY, 126), (0o2755, NOBODY, 126), (0o4755, 0, 0)]
    {
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(mode)).unwrap();
        let output = srdma(&scratch.0).uid(user).gid(user).arg("run").arg(&program).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{mode:o} {user}: {}", stderr(&output));
        assert!(code == 0 || stderr(&output).contains("so the linker ignores LD_PRELOAD"));
    }
}

#[test]
fn a_host_without_an_address_is_told_so() {
    if !namespaces_possible("a_host_without_an_address_is_told_so") {
        return;
    }
    let scratch = Scratch::new("lonely");
    plant_tree(&scratch.0);
    let alone = Namespaces::new(&["alone"]);
    let binary = binary_of(&scratch.0).display().to_string();
    let start = |options: &[&str]| {
        let mut command = alone.command("alone", &binary);
        command.env_remove("SRDMA_ADDR").arg("run").args(options).arg("true").output().unwrap()
    };
    let output = start(&[]);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("no usable address") && stderr(&output).contains("--addr 127.0.0.1"));
    assert_eq!(start(&["--addr", "127.0.0.1"]).status.code(), Some(0));
    alone.sh(
        "alone",
        "ip link add v0 type veth peer name v1 && ip addr add 10.7.7.7/24 dev v0 && ip link set v0 up",
    );
    assert_eq!(start(&[]).status.code(), Some(0));
}
