"""Source ``mediawiki``: the pages and files of a MediaWiki, over its action API."""
