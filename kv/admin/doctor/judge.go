package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/kv/admin/health"
)

// Judge checks the facts, area by area.
func Judge(f *Facts) Report {
	return Report{
		f.service(), f.servers(), f.disks(), f.processors(), f.memory(), f.files(), f.clocks(),
		f.network(), f.versions(), f.certificates(), f.settings(), f.replication(), f.placement(),
		f.backups(),
	}
}

// service reports the problems of `tidemark status`.
func (f *Facts) service() Check {
	c := Check{Area: "service", Looked: fmt.Sprintf("%s, %s, %s",
		counted(len(f.Keyspaces), "keyspace"), counted(len(f.Partitions), "partition"),
		counted(len(f.Core.Members), "member")+" of the core")}
	if !f.Status.Ready {
		c.add(Bad, "", "wait, and look at the log of the server that answers if it goes on",
			"the server that answers is not ready: %s", f.Status.WaitingFor)
	}
	if f.unknown(&c, "nodes", "core", "partitions") {
		found := health.OfStatus(f.Status)
		for _, p := range found.Unavailable.Lines() {
			c.add(Bad, "", doUnavailable, "%s", p)
		}
		return c
	}
	found, _ := health.Judge(f.Nodes, f.Partitions, f.Core)
	for _, kind := range []struct {
		level    Level
		problems *health.List
		do       string
	}{
		{Bad, &found.Unavailable, doUnavailable},
		{Bad, &found.Full, "delete data or keyspaces, add disk space, or add nodes"},
		{Warning, &found.UnderReplicated, "start the node again; \"tidemark node decommission\" lets " +
			"a node go that is lost for good"},
		{Warning, &found.Unhealthy, "see the findings about the server below, and its log"},
		{Warning, &found.Core, "start the member again; \"tidemark core replace\" replaces a member " +
			"that is lost for good"},
		{Warning, &found.Links, "look at the network between the two servers, and at firewalls"},
	} {
		for _, p := range kind.problems.Lines() {
			c.add(kind.level, "", kind.do, "%s", p)
		}
	}
	return c
}

const doUnavailable = "start the servers that are down; if most replicas of a partition are lost " +
	"for good, see \"tidemark recover --help\""

// unknown adds a finding for each list that could not be read, and reports whether there is one.
func (f *Facts) unknown(c *Check, lists ...string) (any bool) {
	for _, name := range lists {
		if err := f.Errs[name]; err != nil {
			any = true
			c.add(Warning, "", "see to the core first: \"tidemark status\"", "not known: %v", err)
		}
	}
	return any
}

// servers reports the servers that could not be examined.
func (f *Facts) servers() Check {
	c := Check{Area: "servers", Looked: counted(len(f.Servers), "server") + " examined"}
	for _, s := range f.Servers {
		switch {
		case status.Code(s.Err) == codes.Unimplemented:
			c.add(Advice, s.Address, "finish the upgrade, and look again",
				"it cannot be examined: it, or the server that was asked, runs a release without "+
					"examinations")
			continue
		case s.Err != nil:
			c.add(Bad, s.Address, "start the server, or look at the network between the servers",
				"it cannot be examined: %v", s.Err)
			continue
		case f.Status.Cluster != 0 && s.Cluster != 0 && s.Cluster != f.Status.Cluster:
			c.add(Bad, s.Address, "give it another address, or let it go from this cluster",
				"it is in another cluster, %016x", s.Cluster)
		}
		for _, why := range s.NotReady {
			c.add(Warning, s.Address, "wait, and look at its log if this goes on",
				"it is not ready: %s", why)
		}
		if up := f.Now.Sub(s.Started); up >= 0 && up < justStarted {
			c.add(Advice, s.Address, "look at its log if nobody has started it",
				"it was started %v ago", up.Round(time.Second))
		}
	}
	return c
}

// answering are the servers that were examined.
func (f *Facts) answering() []Server {
	return slices.DeleteFunc(slices.Clone(f.Servers), func(s Server) bool { return s.Err != nil })
}

// region is the region in a server's settings.
func region(s *Server) string {
	for _, x := range s.Settings {
		if x.Name == "locality" {
			region, _, _ := strings.Cut(x.Value, ",")
			return region
		}
	}
	return ""
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
