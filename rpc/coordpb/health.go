package coordpb

import (
	"net/url"
	"slices"
	"strings"
)

// healthOf is the service by which a member of the core reports, through
// grpc.health.v1.Health/Check, what its page /health shows; the page's query follows. A member of
// an earlier version says that there is no such service.
const healthOf = "tidemark.coordination.health?"

// HealthOf names the service that reports a member's health as its page /health does: whether the
// member can read by itself (serializable), or knows everything that was acknowledged, and whether
// an alarm is raised that is not excluded.
func HealthOf(serializable bool, excluded map[string]bool) string {
	query := url.Values{}
	if serializable {
		query.Set("serializable", "true")
	}
	for name, is := range excluded {
		if is {
			query.Add("exclude", name)
		}
	}
	slices.Sort(query["exclude"])
	return healthOf + query.Encode()
}

// IsHealthOf parses a name made by HealthOf.
func IsHealthOf(service string) (serializable bool, excluded map[string]bool, ok bool) {
	encoded, ok := strings.CutPrefix(service, healthOf)
	if !ok {
		return false, nil, false
	}
	query, err := url.ParseQuery(encoded)
	if err != nil {
		return false, nil, false
	}
	excluded = make(map[string]bool)
	for _, name := range query["exclude"] {
		excluded[name] = true
	}
	return query.Get("serializable") == "true", excluded, true
}
