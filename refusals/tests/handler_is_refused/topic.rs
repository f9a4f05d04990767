use pillarbox::prelude::*;

#[derive(serde::Deserialize)]
struct Order {
    id: i64,
}

fn refused(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder.on(async |order: Payload<Order>| {
        println!("{}", order.id);
        Ok(())
    })
}

fn main() {}
