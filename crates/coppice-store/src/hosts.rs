//! Hosts: the machines that run instances.

use coppice_core::{HostId, RegionId};

use crate::{Result, Store};

impl Store {
    /// Records that a control plane starts on this host and returns its epoch,
    /// which is higher than that of every earlier start. Durable on return.
    pub async fn host_start(
        &self,
        host: &HostId,
        region: &RegionId,
        address: &str,
        boot_id: &str,
    ) -> Result<u32> {
        // After the machine failed, a log may go on otherwise than it did before.
        let epoch: i32 = sqlx::query_scalar(
            "with logs as (update volumes set stored_lsn = null
                           where host_id = $1 and exists (select from hosts where id = $1 and boot_id <> $4))
             insert into hosts (id, region, address, boot_id, epoch) values ($1, $2, $3, $4, 1)
             on conflict (id) do update set region = $2, address = $3, boot_id = $4,
                 epoch = hosts.epoch + 1, heartbeat = now()
             returning epoch",
        )
        .bind(host.as_str())
        .bind(region.as_str())
        .bind(address)
        .bind(boot_id)
        .fetch_one(&self.pool)
        .await?;
        Ok(epoch.unsigned_abs())
    }

    /// Says that the host is alive.
    pub async fn host_heartbeat(&self, host: &HostId) -> Result<()> {
        sqlx::query("update hosts set heartbeat = now() where id = $1")
            .bind(host.as_str())
            .execute(&self.relaxed)
            .await?;
        Ok(())
    }
}
