"""The file that tells every OpenStack client how to reach this cloud."""

from pathlib import Path

from kilonova.embedded.secret import write_private
from kilonova.embedded.settings import REGION, Site

CLOUD = """\
  {cloud}:
    region_name: {region}
    auth:
      auth_url: {url}
      username: {user}
      password: {password}
      project_name: {project}
      user_domain_name: Default
      project_domain_name: Default
"""


def write_clouds(site: Site, path: Path) -> None:
    """Write a clouds.yaml: `kilonova` administers project admin, `kilonova-demo` is a member of project demo."""
    rows = (("kilonova", "admin", "admin"), ("kilonova-demo", "demo", "demo"))
    text = "clouds:\n" + "".join(
        CLOUD.format(
            cloud=cloud, region=REGION, url=site.auth_url, user=user, password=site.secrets[user], project=project
        )
        for cloud, user, project in rows
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_private(path, text)
