//! RabbitMQ.

mod delivery;
mod intake;

use stations::RabbitStation;
use stations::rabbitmq::{OwnNode, SharedNode};

mod suite {
    use super::*;

    pillarbox_testing::transport_suite!(RabbitStation<SharedNode>);
}

mod mortal {
    use super::*;

    pillarbox_testing::transport_suite! { @tests RabbitStation<OwnNode>;
        a_broker_that_is_away_is_unavailable,
        nothing_is_lost_when_the_broker_dies_in_the_middle,
    }
    pillarbox_testing::subscription_suite! { @tests RabbitStation<OwnNode>;
        nothing_is_lost_when_the_broker_dies_in_between,
    }
}

mod subscriptions {
    use super::*;

    pillarbox_testing::subscription_suite!(RabbitStation<SharedNode>);
}

#[test]
fn a_message_can_be_a_cloud_event() {
    pillarbox_testing::run(|| crate::cloud_events::a_message_can_be_a_cloud_event::<RabbitStation<SharedNode>>("ce-"));
}
