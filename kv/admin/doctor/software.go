package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	// soon and verySoon are the times before a certificate's expiry from which on it is reported.
	soon, verySoon = 30 * 24 * time.Hour, 7 * 24 * time.Hour
)

// versions compares the programs of the servers.
func (f *Facts) versions() Check {
	c := Check{Area: "versions"}
	of := map[string][]string{}
	for _, s := range f.answering() {
		of[s.Version] = append(of[s.Version], s.Address)
	}
	versions := slices.Sorted(maps.Keys(of))
	c.Looked = strings.Join(versions, ", ")
	if len(versions) > 1 {
		var parts []string
		for _, v := range versions {
			parts = append(parts, fmt.Sprintf("%s at %s", v, strings.Join(of[v], ", ")))
		}
		c.add(Warning, "", "go on with the upgrade, or go back with it: see docs/upgrades.md",
			"servers run different versions: %s", strings.Join(parts, "; "))
	}
	if f.unknown(&c, "upgrade") {
		return c
	}
	u := &f.Upgrade
	if u.Target != u.Level {
		c.add(Advice, "", "finalise the upgrade when it has proved itself: \"tidemark upgrade finalize\"",
			"the cluster still uses the formats of %s, and could use those of %s", u.Release,
			u.TargetRelease)
	}
	for _, s := range u.Servers {
		if s.Obstacle != "" && u.Target != u.Level {
			c.add(Advice, s.Address, "", "%s", s.Obstacle)
		}
	}
	return c
}

// certificates checks the TLS files as they are on the servers now.
func (f *Facts) certificates() Check {
	c := Check{Area: "certificates"}
	count, first := 0, time.Time{}
	for _, s := range f.answering() {
		for _, x := range s.Certificates {
			count++
			on := fmt.Sprintf("%s of %s", x.File, s.Address)
			const do = "renew it; servers read the file again by themselves"
			left := x.NotAfter.Sub(f.Now)
			if x.Failure == "" && (first.IsZero() || x.NotAfter.Before(first)) {
				first = x.NotAfter
			}
			switch {
			case x.Failure != "":
				c.add(Bad, on, "put a certificate in PEM there", "it cannot be used: %s", x.Failure)
			case left <= 0:
				c.add(Bad, on, do, "the certificate of %s has run out on %s", x.Subject, day(x.NotAfter))
			case left <= verySoon:
				c.add(Warning, on, do, "the certificate of %s runs out on %s", x.Subject, day(x.NotAfter))
			case left <= soon:
				c.add(Advice, on, do, "the certificate of %s runs out on %s", x.Subject, day(x.NotAfter))
			case x.NotBefore.After(f.Now):
				c.add(Bad, on, "look at the server's clock, or wait", "the certificate of %s is valid from "+
					"%s on", x.Subject, day(x.NotBefore))
			}
		}
	}
	switch {
	case count == 0:
		c.Looked = "none: no TLS"
	default:
		c.Looked = fmt.Sprintf("%s, the first runs out on %s", counted(count, "certificate"), day(first))
	}
	return c
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// settings checks that settings are equal on all servers where they must be, and that no server's
// settings contradict each other.
func (f *Facts) settings() Check {
	c := Check{Area: "settings"}
	values := map[string]map[string][]string{}
	for _, s := range f.answering() {
		own := map[string]string{}
		for _, x := range s.Settings {
			own[x.Name] = x.Value
			if !x.Same {
				continue
			}
			if values[x.Name] == nil {
				values[x.Name] = map[string][]string{}
			}
			values[x.Name][x.Value] = append(values[x.Name][x.Value], s.Address)
		}
		if own["insecure"] == "true" {
			c.add(Warning, s.Address, "give the servers certificates, or the same --secret-file",
				"--insecure takes every caller that says so for a server of the cluster")
		}
		if own["http-debug-for-all"] == "true" {
			c.add(Warning, s.Address, "start it without --http-debug all",
				"profiles are open to every client that reaches --http")
		}
		for _, d := range s.Disks {
			if d.Size > 0 && d.Reserve > d.Size/2 {
				c.add(Warning, s.Address, "lower --min-free", "--min-free (%s) is more than half of the disk "+
					"(%s)", size(d.Reserve), size(d.Size))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if len(values[name]) < 2 {
			continue
		}
		var parts []string
		for _, v := range slices.Sorted(maps.Keys(values[name])) {
			parts = append(parts, fmt.Sprintf("%s at %s", v, strings.Join(values[name][v], ", ")))
		}
		c.add(Warning, "--"+name, "give all servers the same value, and restart them one by one",
			"servers have different values: %s", strings.Join(parts, "; "))
	}
	c.Looked = fmt.Sprintf("%s compared", counted(len(values), "setting"))
	return c
}
