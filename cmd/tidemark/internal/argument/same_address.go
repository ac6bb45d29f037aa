package argument

import (
	"context"
	"net"
	"slices"
)

// Resolver looks up the addresses of a host. net.DefaultResolver implements it.
type Resolver interface {
	LookupHost(ctx context.Context, host string) ([]string, error)
}

// ListedAs returns the member of a list of HOST:PORT addresses that has the same host and port as
// an address, written in another way: localhost:7400 for 127.0.0.1:7400. It returns "" if the list
// has no such member. A host that cannot be looked up counts as another host.
func ListedAs(ctx context.Context, resolver Resolver, address string, list []string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return ""
	}
	own := lookedUp(ctx, resolver, host)
	for _, member := range list {
		otherHost, otherPort, err := net.SplitHostPort(member)
		if err != nil || otherPort != port {
			continue
		}
		for _, other := range lookedUp(ctx, resolver, otherHost) {
			if slices.Contains(own, other) {
				return member
			}
		}
	}
	return ""
}

// lookedUp returns the addresses of a host in the form of net.IP.String.
func lookedUp(ctx context.Context, resolver Resolver, host string) (all []string) {
	found := []string{host}
	if net.ParseIP(host) == nil {
		var err error
		if found, err = resolver.LookupHost(ctx, host); err != nil {
			return nil
		}
	}
	for _, text := range found {
		if ip := net.ParseIP(text); ip != nil {
			all = append(all, ip.String())
		}
	}
	return all
}
