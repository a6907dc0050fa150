//! Which calls there are: those of the public services, as the contract describes them.

use prost::Message as _;
use prost_reflect::prost_types::FileDescriptorSet;
use prost_reflect::{DescriptorPool, MethodDescriptor};
use ringfence_api::FILE_DESCRIPTOR_SET;
use ringfence_api::v1;
use std::collections::HashMap;
use std::sync::LazyLock;

/// The services that clients may call. What is for peers only is not among them.
const PUBLIC: [&str; 6] = [
    v1::worker_service_server::SERVICE_NAME,
    v1::map_service_server::SERVICE_NAME,
    v1::admin_service_server::SERVICE_NAME,
    v1::placement_service_server::SERVICE_NAME,
    v1::fence_service_server::SERVICE_NAME,
    v1::lock_service_server::SERVICE_NAME,
];

/// The calls by their paths.
pub(super) struct Contract {
    methods: HashMap<String, MethodDescriptor>,
}

impl Contract {
    /// The one of this process.
    ///
    /// # Errors
    /// When what was compiled in cannot be read.
    pub(super) fn get() -> Result<&'static Contract, String> {
        static CONTRACT: LazyLock<Result<Contract, String>> = LazyLock::new(Contract::read);
        CONTRACT.as_ref().map_err(Clone::clone)
    }

    /// The contract that was compiled in, without its comments: they are most of it, and reflection has them.
    fn read() -> Result<Contract, String> {
        let mut files = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).map_err(|e| e.to_string())?;
        files.file.iter_mut().for_each(|file| file.source_code_info = None);
        let pool = DescriptorPool::from_file_descriptor_set(files).map_err(|e| e.to_string())?;
        let services = pool.services().filter(|service| PUBLIC.contains(&service.full_name()));
        let methods = services.flat_map(|service| {
            let name = service.full_name().to_owned();
            service
                .methods()
                .map(move |method| (format!("/{name}/{}", method.name()), method))
                .collect::<Vec<_>>()
        });
        Ok(Contract { methods: methods.collect() })
    }

    /// The call of this path.
    pub(super) fn method(&self, path: &str) -> Option<&MethodDescriptor> {
        self.methods.get(path)
    }

    /// What an error's details look like.
    pub(super) fn error_detail(&self) -> Option<prost_reflect::MessageDescriptor> {
        let method = self.methods.values().next()?;
        method.parent_pool().get_message_by_name("ringfence.v1.ErrorDetail")
    }
}
