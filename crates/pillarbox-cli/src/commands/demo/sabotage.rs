//! What a dishonest outbox would have done: the books must notice.

use clap::ValueEnum;

use super::failed;
use super::shop::Shop;
use crate::exit::Failure;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Sabotage {
    /// An order vanishes
    LoseOrder,
    /// A message vanishes
    LoseMessage,
    /// What a handler did is undone
    LoseEffect,
    /// An order is shipped a second time
    ShipTwice,
}

impl Sabotage {
    pub(super) fn told(self) -> &'static str {
        match self {
            Self::LoseOrder => "an order was deleted",
            Self::LoseMessage => "a message was deleted",
            Self::LoseEffect => "a shipment was undone",
            Self::ShipTwice => "an order was shipped a second time",
        }
    }

    pub(super) async fn commit(self, shop: &Shop) -> Result<(), Failure> {
        let sql = match self {
            Self::LoseOrder => "DELETE FROM orders WHERE id = (SELECT max(id) FROM orders)",
            Self::LoseMessage => {
                "DELETE FROM pillarbox_outbox_shelf WHERE id = (SELECT max(id) FROM pillarbox_outbox_shelf)"
            }
            Self::LoseEffect => {
                "DELETE FROM effects WHERE message_id = (SELECT max(message_id) FROM effects WHERE topic = 'order.placed')"
            }
            Self::ShipTwice => {
                "INSERT INTO effects (message_id, topic, order_id)
                 SELECT randomblob(16), topic, order_id FROM effects WHERE topic = 'order.placed' LIMIT 1"
            }
        };
        let changed = sqlx::query(sql).execute(shop.outbox().store().pool()).await.map_err(failed)?;
        if changed.rows_affected() == 1 { Ok(()) } else { Err(failed("the sabotage found nothing to change")) }
    }
}
