package kv

import "strings"

// splitEndpoints takes lists apart, "host:port,host:port", and refuses what cannot be an address.
func splitEndpoints(endpoints []string) ([]string, error) {
	var all []string
	for _, list := range endpoints {
		for endpoint := range strings.SplitSeq(list, ",") {
			if endpoint = strings.TrimSpace(endpoint); endpoint == "" {
				return nil, invalid("open", "", nil, "one of the endpoints is empty; want addresses such as 127.0.0.1:7400")
			}
			all = append(all, endpoint)
		}
	}
	if len(all) == 0 {
		return nil, invalid("open", "", nil, "no endpoints are given; want addresses such as 127.0.0.1:7400")
	}
	return all, nil
}
