package links

import (
	"fmt"
	"slices"
	"strings"
)

// command is one call of ip(8), with its standard input.
type command struct {
	args  []string
	stdin string
}

// setUp returns the commands that create the bridge and the namespaces. The TUN devices must exist
// already.
func setUp(servers int) []command {
	var all []command
	do := func(args ...string) { all = append(all, command{args: args}) }
	do("link", "add", bridge, "type", "bridge")
	do("addr", "add", fmt.Sprintf("%s/%d", clientsIP, subnetBits), "dev", bridge)
	do("link", "set", bridge, "up")
	do("link", "set", tunnel(Clients), "up")
	for i := range servers {
		h := Host(i)
		do("netns", "add", namespace(h))
		do("link", "add", veth(h), "type", "veth", "peer", "name", "eth0", "netns", namespace(h))
		do("link", "set", veth(h), "master", bridge, "up")
		do("link", "set", tunnel(h), "netns", namespace(h))
		do(inside(h, "link", "set", "lo", "up")...)
		do(inside(h, "addr", "add", fmt.Sprintf("%s/%d", ip(h), subnetBits), "dev", "eth0")...)
		do(inside(h, "link", "set", "eth0", "up")...)
		do(inside(h, "link", "set", tunnel(h), "up")...)
	}
	return all
}

// route returns the line of an ip batch that gives a link a new shape. before is the present shape.
// The line is empty if the kernel's route stays the same: a link stays on its TUN device when only
// its delay changes.
func route(l Link, before, after Shape) string {
	way := func(s Shape) string {
		switch {
		case s == Shape{}:
			return ""
		case s.Cut && s.Refused:
			return fmt.Sprintf("unreachable %s/32", ip(l.To))
		default:
			return fmt.Sprintf("%s/32 dev %s src %s", ip(l.To), tunnel(l.From), ip(l.From))
		}
	}
	was, is := way(before), way(after)
	switch {
	case was == is:
		return ""
	case is == "":
		return "route del " + was
	case was == "":
		return "route add " + is
	default:
		// The two routes are of different kinds, and ip does not replace a route with a route of another
		// kind.
		return "route del " + was + "\nroute add " + is
	}
}

// reroute returns the commands that change the shapes of links, one command for each host that
// sends.
func reroute(before, after map[Link]Shape) []command {
	lines := make(map[Host][]string)
	for l, shape := range after {
		if line := route(l, before[l], shape); line != "" {
			lines[l.From] = append(lines[l.From], line)
		}
	}
	var hosts []Host
	for h := range lines {
		hosts = append(hosts, h)
	}
	slices.Sort(hosts)
	var all []command
	for _, h := range hosts {
		slices.Sort(lines[h])
		all = append(all, command{args: inside(h, "-batch", "-"), stdin: strings.Join(lines[h],
			"\n") + "\n"})
	}
	return all
}
