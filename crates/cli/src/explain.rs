//! `srdma explain`: the rows of the table of causes.

use crate::print::{complain, out};
use crate::USAGE;
use clap::Args;
use serde_json::json;
use srdma_abi::cause::{Cause, Row, WcStatus, TABLE};
use std::fmt::Write;
use std::process::ExitCode;

/// `srdma explain`: its options.
#[derive(Args)]
pub struct ExplainCommand {
    /// Code (vendor_err), its name, or `list`
    #[arg(value_name = "CODE|list")]
    code: String,

    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// Name of the status in verbs.h.
pub fn status_name(status: WcStatus) -> &'static str {
    match status {
        WcStatus::Success => "IBV_WC_SUCCESS",
        WcStatus::LocLenErr => "IBV_WC_LOC_LEN_ERR",
        WcStatus::LocQpOpErr => "IBV_WC_LOC_QP_OP_ERR",
        WcStatus::LocProtErr => "IBV_WC_LOC_PROT_ERR",
        WcStatus::WrFlushErr => "IBV_WC_WR_FLUSH_ERR",
        WcStatus::RemInvReqErr => "IBV_WC_REM_INV_REQ_ERR",
        WcStatus::RemAccessErr => "IBV_WC_REM_ACCESS_ERR",
        WcStatus::RemOpErr => "IBV_WC_REM_OP_ERR",
        WcStatus::RetryExcErr => "IBV_WC_RETRY_EXC_ERR",
        WcStatus::RnrRetryExcErr => "IBV_WC_RNR_RETRY_EXC_ERR",
        WcStatus::FatalErr => "IBV_WC_FATAL_ERR",
        WcStatus::GeneralErr => "IBV_WC_GENERAL_ERR",
    }
}

fn name(row: &Row) -> String {
    format!("{:?}", row.cause)
}

/// The rows that `wanted` means: one, or all of them; and whether the code says that it was injected.
fn rows(wanted: &str) -> Option<(Vec<&'static Row>, bool)> {
    if wanted == "list" {
        return Some((TABLE.iter().collect(), false));
    }
    let number = match wanted.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => wanted.parse().ok(),
    };
    if let Some((cause, injected)) = number.and_then(Cause::from_vendor_err) {
        return Some((vec![cause.row()], injected));
    }
    let row = TABLE.iter().find(|row| name(row).eq_ignore_ascii_case(wanted))?;
    Some((vec![row], false))
}

/// What to say of faults on purpose.
fn caveat(injected: bool) -> Option<&'static str> {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if injected {
        return Some("This did not happen: it was injected, as --fault or SRDMA_FAULT asked.");
    }
    let wanted = is_set("SRDMA_FAULT") || is_set("SRDMA_LOSS");
    wanted.then_some("SRDMA_FAULT or SRDMA_LOSS is set here: faults on purpose may be what caused it.")
}

fn text(rows: &[&Row]) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    match rows {
        [row] => {
            let code = row.cause as u16;
            let _ = writeln!(text, "{code}  {}  ({})", name(row), status_name(row.status));
            let _ =
                writeln!(text, "What:   {}\nMet:    {}\nRemedy: {}", row.what, row.cause.met(), row.remedy);
        }
        _ => {
            for row in rows {
                let code = row.cause as u16;
                let (name, status) = (name(row), status_name(row.status));
                let _ = writeln!(text, "{code:>3}  {name:<21}  {status:<24}  {}", row.what);
            }
        }
    }
    text
}

fn object(row: &Row, injected: bool) -> serde_json::Value {
    json!({
        "injected": injected,
        "code": row.cause as u16,
        "name": name(row),
        "status": status_name(row.status),
        "status_code": row.status as u8,
        "what": row.what,
        "met": row.cause.met(),
        "remedy": row.remedy,
    })
}

/// Carries out `srdma explain`.
pub fn explain(command: &ExplainCommand) -> ExitCode {
    let Some((rows, injected)) = rows(&command.code) else {
        complain(&format_args!("no error code {:?}; `srdma explain list` shows all", command.code));
        return ExitCode::from(USAGE);
    };
    match (command.json, command.code.as_str()) {
        (false, _) => {
            out(&text(&rows));
            if let Some(caveat) = caveat(injected).filter(|_| rows.len() == 1) {
                out(&format!("Note:   {caveat}\n"));
            }
        }
        (true, "list") => {
            let all: serde_json::Value = rows.iter().map(|row| object(row, false)).collect();
            out(&format!("{all:#}\n"));
        }
        (true, _) => rows.iter().for_each(|row| out(&format!("{:#}\n", object(row, injected)))),
    }
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use srdma_abi::cause::INJECTED;

    #[test]
    fn every_row_is_found_by_code_and_by_name() {
        for row in TABLE {
            let code = row.cause as u16;
            for wanted in [code.to_string(), format!("{code:#x}"), name(row), name(row).to_lowercase()] {
                let (found, injected) = rows(&wanted).unwrap();
                assert_eq!((found.len(), found[0].cause, injected), (1, row.cause, false), "{wanted}");
            }
            let (found, injected) = rows(&format!("{:#x}", code | INJECTED)).unwrap();
            assert_eq!((found[0].cause, injected), (row.cause, true));
            let shown = text(&[row]);
            for part in [row.what, row.cause.met(), row.remedy] {
                assert!(shown.contains(part), "{shown}");
            }
        }
        assert_eq!(rows("list").unwrap().0.len(), TABLE.len());
        assert_eq!(text(&rows("list").unwrap().0).lines().count(), TABLE.len());
    }

    #[test]
    fn other_words_are_no_code() {
        for wanted in ["", "0", "65535", "-1", "nonsense", "0xzz"] {
            assert!(rows(wanted).is_none(), "{wanted}");
        }
    }
}
