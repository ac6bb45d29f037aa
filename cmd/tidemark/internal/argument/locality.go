package argument

import (
	"strings"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
)

// ParseLocality reads the value of --locality: region=r,zone=z, either of them or both.
func ParseLocality(text string) (region, zone string, err error) {
	if text == "" {
		return "", "", nil
	}
	for part := range strings.SplitSeq(text, ",") {
		name, value, found := strings.Cut(strings.TrimSpace(part), "=")
		var field *string
		switch {
		case !found || value == "":
			return "", "", exit.Usagef("--locality %q: write it as region=NAME,zone=NAME", text)
		case name == "region":
			field = &region
		case name == "zone":
			field = &zone
		default:
			return "", "", exit.Usagef(
				"--locality %q: %q is not known; the parts are region and zone", text, name)
		}
		if *field != "" {
			return "", "", exit.Usagef("--locality %q: %s is given twice", text, name)
		}
		*field = value
	}
	return region, zone, nil
}
