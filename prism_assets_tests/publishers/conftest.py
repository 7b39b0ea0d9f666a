from prism_assets_tests.metadata.worlds import world as world
