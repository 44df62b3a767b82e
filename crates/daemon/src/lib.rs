//! What outlives a daemon: definitions of devices and limits of tenants, in a crash-safe store (redb).
//!
//! A change is on the disk before it is answered, so neither a killed daemon nor a power cut loses a definition that somebody was
//! told of; one commit is one fsync(2), on the daemon's own thread. This room knows the form of what is stored,
//! not what it means: a definition that no longer makes sense is for whoever reads it to name.
//!
//! Read [`Store`].

use std::path::{Path, PathBuf};

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, TableError};
use srdma_abi::command::{DefineDevice, In, Layout, LimitTenant, Out};
use srdma_doors::socket::server::Keeper;
use srdma_vstellar::host::Change;

/// First byte of every value: the form of what follows.
const FORM: u8 = 1;
/// Devices by name: [`FORM`] and a `DefineDevice`.
const DEVICES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("devices");
/// Tenants by name: [`FORM`] and a `LimitTenant`.
const TENANTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("tenants");

/// Why there is no store, or why a change was not kept.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}")]
pub struct StoreError {
    path: PathBuf,
    source: redb::Error,
}

/// The file of definitions.
pub struct Store {
    path: PathBuf,
    database: Database,
}

/// All that is kept.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// Devices, by name.
    pub devices: Vec<DefineDevice>,
    /// Limits of tenants.
    pub tenants: Vec<LimitTenant>,
    /// Names whose values have a form of another version: left as they are.
    pub unread: Vec<String>,
}

fn encoded<T: Layout>(value: &T) -> Vec<u8> {
    let mut bytes = vec![0; 1 + T::BYTES];
    bytes[0] = FORM;
    value.put(&mut Out(&mut bytes[1..]));
    bytes
}

fn decoded<T: Layout>(bytes: &[u8]) -> Option<T> {
    let (form, body) = bytes.split_first()?;
    (*form == FORM && body.len() == T::BYTES).then(|| T::get(&mut In(body)))
}

impl Store {
    /// Opens the file, which is made if it is not there, and repaired if its last writer was cut off.
    pub fn open(path: &Path) -> Result<Store, StoreError> {
        let database = Database::create(path)
            .map_err(|error| StoreError { path: path.to_owned(), source: error.into() })?;
        Ok(Store { path: path.to_owned(), database })
    }

    fn told<T>(&self, result: Result<T, redb::Error>) -> Result<T, StoreError> {
        result.map_err(|source| StoreError { path: self.path.clone(), source })
    }

    /// Reads everything.
    pub fn load(&self) -> Result<Saved, StoreError> {
        let read = || -> Result<Saved, redb::Error> {
            let mut saved = Saved::default();
            let transaction = self.database.begin_read()?;
            let Saved { devices, tenants, unread } = &mut saved;
            each(&transaction, DEVICES, unread, |device| devices.push(device))?;
            each(&transaction, TENANTS, unread, |tenant| tenants.push(tenant))?;
            Ok(saved)
        };
        self.told(read())
    }

    fn write(&self, change: &Change) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        match change {
            Change::Device(device) => {
                let name = device.name.to_string();
                transaction.open_table(DEVICES)?.insert(name.as_str(), encoded(device).as_slice())?;
            }
            Change::NoDevice(name) => {
                transaction.open_table(DEVICES)?.remove(name.to_string().as_str())?;
            }
            Change::Tenant(tenant) => {
                let name = tenant.tenant.to_string();
                transaction.open_table(TENANTS)?.insert(name.as_str(), encoded(tenant).as_slice())?;
            }
        }
        Ok(transaction.commit()?)
    }
}

/// Calls `take` for every value of a table that can be read; there need not be one.
fn each<T: Layout>(
    transaction: &redb::ReadTransaction,
    table: TableDefinition<'_, &str, &[u8]>,
    unread: &mut Vec<String>,
    mut take: impl FnMut(T),
) -> Result<(), redb::Error> {
    let table = match transaction.open_table(table) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    for entry in table.iter()? {
        let (name, value) = entry?;
        match decoded(value.value()) {
            Some(value) => take(value),
            None => unread.push(name.value().to_owned()),
        }
    }
    Ok(())
}

impl Keeper for Store {
    fn keep(&mut self, change: &Change) -> Result<(), String> {
        self.told(self.write(change)).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use srdma_abi::command::{Name, Quota};

    fn file(test: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("srdma-store-{test}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    fn device(name: &str, qps: u32) -> DefineDevice {
        let quota = Quota { qps, ..Quota::default() };
        DefineDevice { name: Name::new(name).unwrap(), quota, owner: 7, ..DefineDevice::default() }
    }

    #[test]
    fn what_was_kept_is_there_after_a_reopening_and_what_was_removed_is_not() {
        let path = file("reopened");
        let mut store = Store::open(&path).unwrap();
        assert_eq!(store.load().unwrap(), Saved::default());
        let tenant =
            LimitTenant { tenant: Name::new("blue").unwrap(), quota: Quota { mrs: 3, ..Quota::default() } };
        for change in [
            Change::Device(device("b", 1)),
            Change::Device(device("a", 2)),
            Change::Tenant(tenant),
            Change::Device(device("c", 3)),
            Change::NoDevice(Name::new("b").unwrap()),
            Change::Device(device("c", 4)),
        ] {
            store.keep(&change).unwrap();
        }
        drop(store);
        let saved = Store::open(&path).unwrap().load().unwrap();
        assert_eq!(saved.devices, [device("a", 2), device("c", 4)]);
        assert_eq!((saved.tenants, saved.unread), (vec![tenant], vec![]));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_form_of_another_version_is_left_alone_and_named() {
        let path = file("form");
        let mut store = Store::open(&path).unwrap();
        store.keep(&Change::Device(device("a", 1))).unwrap();
        let transaction = store.database.begin_write().unwrap();
        transaction.open_table(DEVICES).unwrap().insert("new", &[2u8, 0, 0][..]).unwrap();
        transaction.commit().unwrap();
        let saved = store.load().unwrap();
        assert_eq!((saved.devices.len(), saved.unread), (1, vec!["new".to_owned()]));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_that_is_no_store_is_refused_and_stays() {
        let path = file("rubbish");
        std::fs::write(&path, "not a store at all").unwrap();
        let error = Store::open(&path).err().unwrap().to_string();
        assert!(error.contains("srdma-store-rubbish"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"not a store at all");
        std::fs::remove_file(&path).unwrap();
    }
}
