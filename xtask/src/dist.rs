//! The relocatable tree in `target/dist`.

/// Builds it.
pub fn run(_args: &[String]) -> anyhow::Result<()> {
    anyhow::bail!("cargo xtask dist is not written yet")
}
