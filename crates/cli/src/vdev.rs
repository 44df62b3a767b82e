//! `srdma vdev`: virtual devices of the daemon on this host.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{json, Value};
use srdma_abi::command::{
    BadName, Define, DefineDevice, DeviceNamed, DeviceRow, Expose, Lifecycle, Limit, LimitTenant, List,
    ListDevices, Name, Quota, Request, Show, Undefine, UndefineDevice, NO_OWNER,
};
use srdma_doors::socket::client::{DialError, Talk};
use srdma_doors::socket::server::CONTROL;

use crate::daemon::At;
use crate::print::{complain, out};
use crate::USAGE;

/// `srdma vdev`: its options.
#[derive(Args)]
#[command(after_help = "Examples:\n  srdma vdev create --name a --tenant blue --max-qps 64\n  \
                        srdma run --vdev a -- ib_write_bw\n  srdma vdev list --json")]
pub struct VdevCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Define a device: a name and limits; nothing of it exists before a program opens it
    Create(Create),
    /// Show all devices
    List(Plain),
    /// Show one
    Show(Named),
    /// Have the daemon listen where programs open it; prints the socket's path, for `srdma run --vdev PATH`
    Expose(Named),
    /// Remove one
    Destroy(Destroy),
    /// Limit what all devices of a tenant may have together
    Limit(LimitArgs),
}

#[derive(Args)]
struct Plain {
    #[command(flatten)]
    at: At,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Named {
    #[command(flatten)]
    plain: Plain,
    /// Name of the device
    #[arg(value_name = "NAME", value_parser = parse_name)]
    name: Name,
}

#[derive(Args)]
struct Create {
    #[command(flatten)]
    plain: Plain,
    /// Its name, unique on this host
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    name: Name,
    /// Whose it is
    #[arg(long, value_name = "TENANT", default_value = "default", value_parser = parse_name)]
    tenant: Name,
    /// User (a number) who may open it, beside the daemon's own user and root
    #[arg(long, value_name = "UID", default_value_t = NO_OWNER, hide_default_value = true)]
    owner: u32,
    #[command(flatten)]
    limits: Limits,
}

#[derive(Args)]
struct LimitArgs {
    #[command(flatten)]
    plain: Plain,
    /// The tenant
    #[arg(value_name = "TENANT", value_parser = parse_name)]
    tenant: Name,
    #[command(flatten)]
    limits: Limits,
}

#[derive(Args)]
struct Destroy {
    #[command(flatten)]
    named: Named,
    /// Wait for attached programs to end; let no new one in
    #[arg(long)]
    drain: bool,
}

/// What may be had at most; what is not given is limited by the host alone.
#[derive(Args)]
struct Limits {
    /// Queue pairs
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    max_qps: u32,
    /// Completion queues
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    max_cqs: u32,
    /// Memory regions
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    max_mrs: u32,
    /// Programs attached at once
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    max_programs: u32,
    /// Bytes of registered memory
    #[arg(long, value_name = "BYTES", default_value_t = 0, hide_default_value = true)]
    max_mem: u64,
}

impl Limits {
    fn quota(&self) -> Quota {
        Quota {
            mrs: self.max_mrs,
            cqs: self.max_cqs,
            qps: self.max_qps,
            sessions: self.max_programs,
            memory_bytes: self.max_mem,
            ..Quota::default()
        }
    }
}

fn parse_name(text: &str) -> Result<Name, BadName> {
    Name::new(text)
}

/// A conversation with the daemon at `at`.
fn dial(at: &At) -> Result<Talk, DialError> {
    Talk::dial(&at.directory().join(CONTROL))
}

fn ask<R: Request>(at: &At, request: R) -> Result<R::Reply, DialError> {
    Ok(dial(at)?.ask(request)?.0)
}

/// The socket where a program opens the device: its path, or its name, for which the daemon is asked.
pub fn socket_of(at: &At, name: &str) -> Result<PathBuf, DialError> {
    if name.contains('/') {
        // Only a lost working directory has no absolute form.
        return Ok(std::path::absolute(name).unwrap_or_else(|_| name.into()));
    }
    let named =
        |error: BadName| DialError::Refused { errno: libc::EINVAL, text: format!("--vdev {name}: {error}") };
    exposed(at, Name::new(name).map_err(named)?)
}

fn exposed(at: &At, name: Name) -> Result<PathBuf, DialError> {
    let path = ask(at, Expose(DeviceNamed { name }))?.path.0;
    let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
    Ok(String::from_utf8_lossy(&path[..end]).into_owned().into())
}

fn lifecycle(row: &DeviceRow) -> &'static str {
    const DRAINING: u32 = Lifecycle::Draining as u32;
    const EXPOSED: u32 = Lifecycle::Exposed as u32;
    match row.lifecycle {
        EXPOSED => "exposed",
        DRAINING => "draining",
        _ => "defined",
    }
}

fn amounts(quota: &Quota) -> Value {
    json!({
        "programs": quota.sessions,
        "qps": quota.qps,
        "cqs": quota.cqs,
        "mrs": quota.mrs,
        "pds": quota.pds,
        "channels": quota.channels,
        "memory_bytes": quota.memory_bytes,
        "ring_bytes": quota.ring_bytes,
    })
}

fn as_json(row: &DeviceRow) -> Value {
    json!({
        "id": row.id,
        "name": row.name.to_string(),
        "tenant": row.tenant.to_string(),
        "tenant_id": row.tenant_id,
        "state": lifecycle(row),
        "owner": (row.owner != NO_OWNER).then_some(row.owner),
        "limits": amounts(&row.quota),
        "used": amounts(&row.used),
    })
}

fn as_text(rows: &[DeviceRow]) -> String {
    let head = format!(
        "{:<20} {:<12} {:<9} {:>8} {:>6} {:>6} {:>6} {:>14}\n",
        "name", "tenant", "state", "programs", "qps", "cqs", "mrs", "memory_bytes"
    );
    let line = |row: &DeviceRow| {
        let Quota { sessions, qps, cqs, mrs, memory_bytes, .. } = row.used;
        let (name, tenant) = (row.name.to_string(), row.tenant.to_string());
        format!(
            "{name:<20} {tenant:<12} {:<9} {sessions:>8} {qps:>6} {cqs:>6} {mrs:>6} {memory_bytes:>14}\n",
            lifecycle(row)
        )
    };
    std::iter::once(head).chain(rows.iter().map(line)).collect()
}

fn show(rows: &[DeviceRow], json: bool) {
    match json {
        true => out(&format!("{:#}\n", Value::from(rows.iter().map(as_json).collect::<Vec<_>>()))),
        false => out(&as_text(rows)),
    }
}

/// Every device, page by page in one conversation.
fn list(at: &At) -> Result<Vec<DeviceRow>, DialError> {
    let mut talk = dial(at)?;
    let (mut rows, mut after): (Vec<DeviceRow>, Name) = Default::default();
    loop {
        let (page, _) = talk.ask(List(ListDevices { after }))?;
        rows.extend(page.rows.0.iter().take(page.count as usize));
        match rows.last() {
            Some(last) if page.more != 0 && page.count > 0 => after = last.name,
            _ => return Ok(rows),
        }
    }
}

fn carry_out(what: &What) -> Result<(), DialError> {
    match what {
        What::Create(create) => {
            let (at, quota) = (&create.plain.at, create.limits.quota());
            let Create { name, tenant, owner, .. } = *create;
            ask(at, Define(DefineDevice { name, tenant, quota, owner, reserved: 0 }))?;
            if create.plain.json {
                let row = ask(at, Show(DeviceNamed { name: create.name }))?;
                out(&format!("{:#}\n", as_json(&row)));
            }
        }
        What::List(plain) => show(&list(&plain.at)?, plain.json),
        What::Show(named) => {
            let row = ask(&named.plain.at, Show(DeviceNamed { name: named.name }))?;
            match named.plain.json {
                true => out(&format!("{:#}\n", as_json(&row))),
                false => out(&as_text(&[row])),
            }
        }
        What::Expose(named) => {
            let path = exposed(&named.plain.at, named.name)?.display().to_string();
            match named.plain.json {
                true => out(&format!("{:#}\n", json!({ "path": path }))),
                false => out(&format!("{path}\n")),
            }
        }
        What::Destroy(destroy) => {
            let Named { plain, name } = &destroy.named;
            ask(
                &plain.at,
                Undefine(UndefineDevice { name: *name, drain: destroy.drain.into(), reserved: 0 }),
            )?;
        }
        What::Limit(limit) => {
            let (tenant, quota) = (limit.tenant, limit.limits.quota());
            ask(&limit.plain.at, Limit(LimitTenant { tenant, quota }))?;
        }
    }
    Ok(())
}

/// Carries out `srdma vdev`.
pub fn vdev(command: &VdevCommand) -> ExitCode {
    match carry_out(&command.what) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::from(if error.errno() == libc::EINVAL { USAGE } else { 1 })
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_device_is_shown_with_what_it_has_and_may_have() {
        let row = DeviceRow {
            id: 7,
            lifecycle: Lifecycle::Exposed as u32,
            name: Name::new("a").unwrap(),
            tenant: Name::new("blue").unwrap(),
            quota: Quota { qps: 64, ..Quota::default() },
            used: Quota { qps: 3, sessions: 1, ..Quota::default() },
            ..DeviceRow::default()
        };
        let shown = as_json(&row);
        for (pointer, value) in [
            ("/name", json!("a")),
            ("/tenant", json!("blue")),
            ("/state", json!("exposed")),
            ("/limits/qps", json!(64)),
            ("/used/qps", json!(3)),
            ("/used/programs", json!(1)),
        ] {
            assert_eq!(shown.pointer(pointer), Some(&value), "{pointer}");
        }
        let text = as_text(&[row]);
        assert!(text.lines().count() == 2 && text.contains("blue") && text.contains("exposed"), "{text}");
    }
}
