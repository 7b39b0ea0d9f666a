from prism_assets_tests.metadata.worlds import world as world
from prism_assets_tests.stages.shared_prefix import app as app
