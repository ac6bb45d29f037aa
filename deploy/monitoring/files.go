package monitoring

import "maps"

// Files are the generated files: what is in them, by their path below this folder.
func Files() map[string][]byte {
	files := map[string][]byte{"rules/tidemark.rules.yaml": rules()}
	maps.Copy(files, dashboards())
	return files
}
