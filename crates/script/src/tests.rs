#![allow(clippy::unwrap_used)]
use super::*;

#[test]
fn a_script_says_the_same_when_shown_and_read_again() {
    for (text, shown) in [
        ("", ""),
        ("# nothing\n\n ; \n", ""),
        ("drop 1%", "drop 1%"),
        ("drop", "drop"),
        ("drop 0.5% send # half a percent", "drop 0.5%"),
        ("drop 30% burst on 0-31 from 2s to 5s", "drop 30% burst on 0-31 from 2s to 5s"),
        ("drop for 50ms every 1s on 1mod4,7", "drop on 1mod4,7 for 50ms every 1s"),
        ("drop for 1s from 2s", "drop from 2s to 3s"),
        ("delay 20ms 5% ack receive", "delay 20ms 5% ack receive"),
        (
            "duplicate 1%; corrupt 0.1% data\ndamage 1% control",
            "duplicate 1%; corrupt 0.1% data; damage 1% control",
        ),
        ("delay 1.5us\ndelay 1500ns", "delay 1500ns; delay 1500ns"),
        ("freeze for 300ms every 2s from 1s", "freeze from 1s for 300ms every 2s"),
        ("freeze from 3s", "freeze from 3s"),
        ("fail send 1000 with NoAnswer", "fail send 1000 with 40"),
        ("fail receive 10 of qp 2 with localfault", "fail receive 10 of qp 2 with 5"),
    ] {
        let faults = parse(text).unwrap();
        assert_eq!(faults.to_string(), shown, "{text}");
        assert_eq!(parse(shown).unwrap(), faults, "{text}");
    }
}

#[test]
fn what_is_wrong_is_named_with_its_line_and_what_is_allowed() {
    for (text, line, clause, said) in [
        ("drp 1%", 1, "drp 1%", "begins with drop, duplicate"),
        (
            "drop 1%\n\ndrop 1% sideways",
            3,
            "drop 1% sideways",
            "\"sideways\" is not understood; here may stand a chance",
        ),
        ("drop 1% ; drop 101%", 1, "drop 101%", "0.0001% to 100%"),
        ("drop 0.00001%", 1, "drop 0.00001%", "0.0001% to 100%"),
        ("drop NaN%", 1, "drop NaN%", "0.0001% to 100%"),
        ("drop -1%", 1, "drop -1%", "0.0001% to 100%"),
        ("delay", 1, "delay", "after delay is missing a time such as 300ms"),
        ("delay 5", 1, "delay 5", "\"5\" must be a time such as 300ms (ns, us, ms, s)"),
        ("delay 61s", 1, "delay 61s", "at most 60s"),
        ("drop on 1-300", 1, "drop on 1-300", "paths are 0 to 255"),
        ("drop on 0mod0", 1, "drop on 0mod0", "residue class such as 1mod4"),
        ("drop on many", 1, "drop on many", "paths such as 5, 0-31, 1mod4"),
        ("drop every 1s", 1, "drop every 1s", "every needs for"),
        ("drop for 2s every 1s", 1, "drop for 2s every 1s", "no longer than its period"),
        ("drop from 2s to 1s", 1, "drop from 2s to 1s", "must end (to) after it begins"),
        ("freeze 300ms", 1, "freeze 300ms", "here may stand from, to, for and every TIME"),
        ("fail 5 with NoAnswer", 1, "fail 5 with NoAnswer", "send or receive"),
        ("fail send 0 with NoAnswer", 1, "fail send 0 with NoAnswer", "from 1"),
        ("fail send 5", 1, "fail send 5", "with is missing"),
        ("fail send 5 with Gremlins", 1, "fail send 5 with Gremlins", "`srdma explain list`"),
        ("fail send 5 with 999", 1, "fail send 5 with 999", "`srdma explain list`"),
        (
            "fail send 5 of qp 0 with NoAnswer",
            1,
            "fail send 5 of qp 0 with NoAnswer",
            "order of creation, from 1",
        ),
        ("fail send 5 of course", 1, "fail send 5 of course", "of qp NUMBER, and with CAUSE"),
    ] {
        let error = parse(text).expect_err(text);
        assert_eq!((error.line, &error.clause[..]), (line, clause), "{text}");
        assert!(error.problem.contains(said), "{text}: {}", error.problem);
        assert!(!error.to_string().contains('\n'), "{error}");
    }
}

#[test]
fn no_bytes_upset_the_reader() {
    let words = [
        "drop",
        "delay",
        "freeze",
        "fail",
        "send",
        "receive",
        "1%",
        "on",
        "0-31",
        "1mod4",
        "from",
        "1s",
        "every",
        "with",
        "NoAnswer",
        "of",
        "qp",
        "7",
        ";",
        "\n",
        "#",
        "é%",
        "9999999999999999999s",
        "-",
        ",",
    ];
    let mut rng = srdma_seams::Rng::new(11);
    for _ in 0..50_000 {
        let text: Vec<&str> =
            (0..rng.below(9)).map(|_| words[rng.below(words.len() as u64) as usize]).collect();
        let text = text.join(" ");
        if let Ok(faults) = parse(&text) {
            assert_eq!(parse(&faults.to_string()).as_ref(), Ok(&faults), "{text:?}");
        }
    }
}

#[test]
fn a_file_is_read_and_named_and_what_looks_like_one_must_be_there() {
    let file = std::env::temp_dir().join(format!("srdma-script-{}", std::process::id()));
    let name = file.to_str().unwrap();
    std::fs::write(&file, "drop 1%\ndrop 2%\n").unwrap();
    assert_eq!(load(name).unwrap(), load("drop 1%; drop 2%").unwrap());
    std::fs::write(&file, "drop 1%\nnonsense").unwrap();
    let told = load(name).unwrap_err().to_string();
    std::fs::remove_file(&file).unwrap();
    assert!(told.contains(name) && told.contains("line 2"), "{told}");
    for missing in ["/no/such.fault", "missing.fault"] {
        let told = load(missing).unwrap_err().to_string();
        assert!(told.contains(&format!("cannot read the fault script {missing}")), "{told}");
    }
    assert!(load("nonsense").unwrap_err().to_string().starts_with("fault script, line 1, \"nonsense\":"));
}
