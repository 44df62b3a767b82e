//! Devices and tenants: definitions, life cycle, and who uses how much.

use alloc::collections::BTreeMap;
use alloc::format;

use srdma_abi::command::{DefineDevice, Denial, DevicePage, DeviceRow, Lifecycle, Name, Quota, PAGE_ROWS};
use srdma_seams::TenantId;

use crate::quota::{self, Account, Part};
use crate::refusal::Refusal;

/// Devices of one host, at most.
pub const DEVICES_MAX: usize = 65_536;
/// The tenant of a device that names none.
pub const DEFAULT_TENANT: &str = "default";

/// Number of a device; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub u32);

/// What a device is defined by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Its name.
    pub name: Name,
    /// Whose it is.
    pub tenant: Name,
    /// What it may have; 0 for what the host has.
    pub quota: Quota,
    /// User who may open it, or `NO_OWNER`.
    pub owner: u32,
}

impl From<&DefineDevice> for Definition {
    fn from(from: &DefineDevice) -> Definition {
        Definition { name: from.name, tenant: from.tenant, quota: from.quota, owner: from.owner }
    }
}

impl From<&Definition> for DefineDevice {
    fn from(from: &Definition) -> DefineDevice {
        let Definition { name, tenant, quota, owner } = *from;
        DefineDevice { name, tenant, quota, owner, reserved: 0 }
    }
}

/// A defined device.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) definition: Definition,
    pub(crate) tenant: TenantId,
    pub(crate) lifecycle: Lifecycle,
    used: Quota,
}

#[derive(Debug)]
struct Tenant {
    id: TenantId,
    /// As given: 0 for what the host has.
    quota: Quota,
    used: Quota,
    devices: u32,
    /// Somebody has set its limits, so it stays without a device.
    is_limited: bool,
}

/// All devices of a host.
#[derive(Debug)]
pub struct Registry {
    host: Account,
    devices: BTreeMap<DeviceId, Device>,
    by_name: BTreeMap<Name, DeviceId>,
    tenants: BTreeMap<Name, Tenant>,
    last_device: u32,
    last_tenant: u32,
}

impl Registry {
    /// No device yet, on a host that has so much.
    pub fn new(host: Quota) -> Registry {
        Registry {
            host: Account::new(host),
            devices: BTreeMap::new(),
            by_name: BTreeMap::new(),
            tenants: BTreeMap::new(),
            last_device: 0,
            last_tenant: 0,
        }
    }

    /// Defines a device. An empty tenant is [`DEFAULT_TENANT`].
    pub fn define(&mut self, definition: &Definition) -> Result<DeviceId, Refusal> {
        let bad = |what, error| Refusal::new(Denial::Value, format!("{what}: {error}"));
        definition.name.text().map_err(|error| bad("name", error))?;
        let tenant = match definition.tenant == Name::default() {
            true => Name::new(DEFAULT_TENANT).unwrap_or_default(),
            false => definition.tenant,
        };
        tenant.text().map_err(|error| bad("tenant", error))?;
        quota::check(&definition.quota, &self.host.limit)?;
        if self.by_name.contains_key(&definition.name) {
            let text = format!("there is a device {} already", definition.name);
            return Err(Refusal::new(Denial::Exists, text));
        }
        if self.devices.len() >= DEVICES_MAX {
            let text = format!("{DEVICES_MAX} devices are defined, as many as a host may have");
            return Err(Refusal::new(Denial::Quota, text));
        }
        // Numbers are not used again: neither wraps in a daemon's life of 136 years at one device a second.
        self.last_device += 1;
        let id = DeviceId(self.last_device);
        let owner = self.tenant_mut(tenant);
        owner.devices += 1;
        let device = Device {
            definition: Definition { tenant, ..*definition },
            tenant: owner.id,
            lifecycle: Lifecycle::Defined,
            used: Quota::default(),
        };
        self.devices.insert(id, device);
        self.by_name.insert(definition.name, id);
        Ok(id)
    }

    /// The tenant of that name, made if new.
    fn tenant_mut(&mut self, name: Name) -> &mut Tenant {
        let last = &mut self.last_tenant;
        self.tenants.entry(name).or_insert_with(|| {
            *last += 1;
            Tenant {
                id: TenantId(*last),
                quota: Quota::default(),
                used: Quota::default(),
                devices: 0,
                is_limited: false,
            }
        })
    }

    /// Whether a tenant could be limited so.
    pub fn check_tenant(&self, name: &Name, quota: &Quota) -> Result<(), Refusal> {
        name.text().map_err(|error| Refusal::new(Denial::Value, format!("tenant: {error}")))?;
        quota::check(quota, &self.host.limit)
    }

    /// Limits what a tenant's devices may have together. What they have already, they keep.
    pub fn limit_tenant(&mut self, name: &Name, quota: &Quota) -> Result<TenantId, Refusal> {
        self.check_tenant(name, quota)?;
        let tenant = self.tenant_mut(*name);
        (tenant.quota, tenant.is_limited) = (*quota, true);
        Ok(tenant.id)
    }

    /// Forgets a device that nobody is attached to.
    pub(crate) fn remove(&mut self, id: DeviceId) {
        let Some(device) = self.devices.remove(&id) else { return };
        self.by_name.remove(&device.definition.name);
        let tenant = device.definition.tenant;
        if let Some(owner) = self.tenants.get_mut(&tenant) {
            owner.devices -= 1;
            if owner.devices == 0 && !owner.is_limited {
                self.tenants.remove(&tenant);
            }
        }
    }

    /// The device with this name.
    pub fn find(&self, name: &Name) -> Result<DeviceId, Refusal> {
        let text = || format!("there is no device {name}");
        self.by_name.get(name).copied().ok_or_else(|| Refusal::new(Denial::Unknown, text()))
    }

    pub(crate) fn device(&self, id: DeviceId) -> Option<&Device> {
        self.devices.get(&id)
    }

    pub(crate) fn device_mut(&mut self, id: DeviceId) -> Option<&mut Device> {
        self.devices.get_mut(&id)
    }

    /// Devices defined.
    pub fn len(&self) -> usize {
        self.devices.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }

    /// What is used on the whole host.
    pub fn used(&self) -> Quota {
        self.host.used
    }

    /// Takes `parts` for a device if it, its tenant and the host allow all of them.
    pub(crate) fn take(&mut self, id: DeviceId, parts: &[Part]) -> Result<(), Refusal> {
        let host = self.host.limit;
        let device = self.devices.get_mut(&id);
        let tenant = device.as_ref().and_then(|device| self.tenants.get_mut(&device.definition.tenant));
        let (Some(device), Some(tenant)) = (device, tenant) else {
            return Err(Refusal::new(Denial::Unknown, "the device was removed"));
        };
        let definition = &device.definition;
        let own = Account { limit: quota::effective(&definition.quota, &host), used: device.used };
        own.allows(parts, &format_args!("device {}", definition.name))?;
        let shared = Account { limit: quota::effective(&tenant.quota, &host), used: tenant.used };
        shared.allows(parts, &format_args!("tenant {}", definition.tenant))?;
        self.host.allows(parts, &"this host")?;
        for used in [&mut device.used, &mut tenant.used, &mut self.host.used] {
            quota::take(used, parts);
        }
        Ok(())
    }

    /// Gives `parts` back.
    pub(crate) fn give_back(&mut self, id: DeviceId, parts: &[Part]) {
        let Some(device) = self.devices.get_mut(&id) else { return };
        quota::give_back(&mut device.used, parts);
        quota::give_back(&mut self.host.used, parts);
        if let Some(tenant) = self.tenants.get_mut(&device.definition.tenant) {
            quota::give_back(&mut tenant.used, parts);
        }
    }

    /// A device as whoever manages it sees it.
    pub fn row(&self, id: DeviceId) -> Option<DeviceRow> {
        let device = self.devices.get(&id)?;
        Some(DeviceRow {
            id: id.0,
            tenant_id: device.tenant.0,
            lifecycle: device.lifecycle as u32,
            owner: device.definition.owner,
            name: device.definition.name,
            tenant: device.definition.tenant,
            quota: quota::effective(&device.definition.quota, &self.host.limit),
            used: device.used,
        })
    }

    /// Devices whose names come after `after`.
    pub fn page(&self, after: &Name) -> DevicePage {
        use core::ops::Bound::{Excluded, Unbounded};
        let mut page = DevicePage::default();
        let mut behind = self.by_name.range((Excluded(*after), Unbounded));
        for (place, (_, id)) in page.rows.0.iter_mut().zip(behind.by_ref().take(PAGE_ROWS)) {
            let Some(row) = self.row(*id) else { continue };
            *place = row;
            page.count += 1;
        }
        page.more = behind.next().is_some().into();
        page
    }
}

#[cfg(test)]
mod tests;
