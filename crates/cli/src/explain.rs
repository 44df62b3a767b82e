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

/// The rows that `wanted` means: one, or all of them.
fn rows(wanted: &str) -> Option<Vec<&'static Row>> {
    if wanted == "list" {
        return Some(TABLE.iter().collect());
    }
    let number = match wanted.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => wanted.parse().ok(),
    };
    let by_code = number.and_then(Cause::from_code).map(Cause::row);
    let row = by_code.or_else(|| TABLE.iter().find(|row| name(row).eq_ignore_ascii_case(wanted)))?;
    Some(vec![row])
}

fn text(rows: &[&Row]) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    match rows {
        [row] => {
            let code = row.cause as u16;
            let _ = writeln!(text, "{code}  {}  ({})", name(row), status_name(row.status));
            let _ = writeln!(text, "What:   {}\nRemedy: {}", row.what, row.remedy);
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

fn object(row: &Row) -> serde_json::Value {
    json!({
        "code": row.cause as u16,
        "name": name(row),
        "status": status_name(row.status),
        "status_code": row.status as u8,
        "what": row.what,
        "remedy": row.remedy,
    })
}

/// Carries out `srdma explain`.
pub fn explain(command: &ExplainCommand) -> ExitCode {
    let Some(rows) = rows(&command.code) else {
        complain(&format_args!("no error code {:?}; `srdma explain list` shows all", command.code));
        return ExitCode::from(USAGE);
    };
    match (command.json, command.code.as_str()) {
        (false, _) => out(&text(&rows)),
        (true, "list") => {
            let all: serde_json::Value = rows.iter().map(|row| object(row)).collect();
            out(&format!("{all:#}\n"));
        }
        (true, _) => rows.iter().for_each(|row| out(&format!("{:#}\n", object(row)))),
    }
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_row_is_found_by_code_and_by_name() {
        for row in TABLE {
            let code = row.cause as u16;
            for wanted in [code.to_string(), format!("{code:#x}"), name(row), name(row).to_lowercase()] {
                let found = rows(&wanted).unwrap();
                assert_eq!((found.len(), found[0].cause), (1, row.cause), "{wanted}");
            }
            let shown = text(&[row]);
            assert!(shown.contains(row.what) && shown.contains(row.remedy), "{shown}");
        }
        assert_eq!(rows("list").unwrap().len(), TABLE.len());
        assert_eq!(text(&rows("list").unwrap()).lines().count(), TABLE.len());
    }

    #[test]
    fn other_words_are_no_code() {
        for wanted in ["", "0", "65535", "-1", "nonsense", "0xzz"] {
            assert!(rows(wanted).is_none(), "{wanted}");
        }
    }
}
