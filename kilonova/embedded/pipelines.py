"""The WSGI pipelines of the neighbours that are wired by a file: what a cloud on one machine needs, no more."""

_AUTH = """
[filter:authtoken]
paste.filter_factory = keystonemiddleware.auth_token:filter_factory
"""

GLANCE = (
    """\
[composite:glance-api-keystone]
paste.composite_factory = glance.api:root_app_factory
/: api
/healthcheck: healthcheck

[composite:api]
paste.composite_factory = glance.api:pipeline_factory
keystone = versionnegotiation authtoken context rootapp

[composite:rootapp]
paste.composite_factory = glance.api:root_app_factory
/: apiversions
/v2: apiv2app

[app:apiversions]
paste.app_factory = glance.api.versions:create_resource

[app:apiv2app]
paste.app_factory = glance.api.v2.router:API.factory

[app:healthcheck]
paste.app_factory = oslo_middleware:Healthcheck.app_factory

[filter:versionnegotiation]
paste.filter_factory = glance.api.middleware.version_negotiation:VersionNegotiationFilter.factory

[filter:context]
paste.filter_factory = glance.api.middleware.context:ContextMiddleware.factory
"""
    + _AUTH
)

NEUTRON = (
    """\
[composite:neutron]
use = egg:Paste#urlmap
/: versions
/v2.0: api

[composite:versions]
use = call:neutron.auth:pipeline_factory
keystone = versionsapp

[composite:api]
use = call:neutron.auth:pipeline_factory
keystone = request_id catch_errors authtoken keystonecontext extensions apiapp

[filter:request_id]
paste.filter_factory = oslo_middleware:RequestId.factory

[filter:catch_errors]
paste.filter_factory = oslo_middleware:CatchErrors.factory

[filter:keystonecontext]
paste.filter_factory = neutron.auth:NeutronKeystoneContext.factory

[filter:extensions]
paste.filter_factory = neutron.api.extensions:plugin_aware_extension_middleware_factory

[app:versionsapp]
paste.app_factory = neutron.pecan_wsgi.app:versions_factory

[app:apiapp]
paste.app_factory = neutron.api.v2.router:APIRouter.factory
"""
    + _AUTH
)

CINDER = (
    """\
[composite:osapi_volume]
use = call:cinder.api:root_app_factory
/: apiversions
/v3: api

[composite:api]
use = call:cinder.api.middleware.auth:pipeline_factory
keystone = request_id faultwrap sizelimit authtoken keystonecontext apiv3

[pipeline:apiversions]
pipeline = request_id faultwrap versions

[filter:request_id]
paste.filter_factory = cinder.api.middleware.request_id:RequestId.factory

[filter:faultwrap]
paste.filter_factory = cinder.api.middleware.fault:FaultWrapper.factory

[filter:sizelimit]
paste.filter_factory = oslo_middleware.sizelimit:RequestBodySizeLimiter.factory

[filter:keystonecontext]
paste.filter_factory = cinder.api.middleware.auth:CinderKeystoneContext.factory

[app:apiv3]
paste.app_factory = cinder.api.v3.router:APIRouter.factory

[app:versions]
paste.app_factory = cinder.api.versions:Versions.factory
"""
    + _AUTH
)

PIPELINES = {"glance": GLANCE, "neutron": NEUTRON, "cinder": CINDER}
