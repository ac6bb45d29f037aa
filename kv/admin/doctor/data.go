package doctor

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/kv/admin"
)

const (
	// slowOperator is the age from which on an operator is reported.
	slowOperator = time.Hour
	// lateFactor is the number of schedule intervals by which a backup may be late.
	lateFactor = 2
	// lateLog is the time by which a log may be late, in addition to its interval.
	lateLog = 5 * time.Minute
)

// replication checks the placement and the state of replicas.
func (f *Facts) replication() Check {
	c := Check{Area: "replication"}
	if f.unknown(&c, "nodes", "keyspaces", "partitions") {
		return c
	}
	wanted := map[string]int{}
	alive := 0
	zones, zoneOf := map[string]bool{}, map[uint64]string{}
	for _, n := range f.Nodes {
		if n.Alive {
			alive++
			zones[n.Region+"/"+n.Zone] = true
		}
		zoneOf[n.ID] = n.Region + "/" + n.Zone
	}
	for _, k := range f.Keyspaces {
		wanted[k.Name] = k.Replicas
		if k.Replicas > alive {
			c.add(Warning, "keyspace "+k.Name, "start more nodes, or lower its replicas "+
				"(\"tidemark keyspace alter\")", "it is to have %d replicas, and %s alive", k.Replicas,
				counted(alive, "node")+map[bool]string{true: " is", false: " are"}[alive == 1])
		}
		if k.Replicas == 1 && alive > 1 {
			c.add(Advice, "keyspace "+k.Name, "give it three replicas (\"tidemark keyspace alter\")",
				"it has one replica: a disk that is lost takes data with it")
		}
	}
	f.quotas(&c)
	few, together := map[string]int{}, map[string]int{}
	for _, p := range f.Partitions {
		voters, in := 0, map[string]bool{}
		for _, r := range p.Replicas {
			if !r.Learner {
				voters++
				in[zoneOf[r.Node]] = true
			}
		}
		if voters < min(wanted[p.Keyspace], alive) {
			few[p.Keyspace]++
		}
		if voters > 1 && len(in) == 1 && len(zones) > 1 {
			together[p.Keyspace]++
		}
	}
	for _, k := range f.Keyspaces {
		if n := few[k.Name]; n > 0 {
			c.add(Warning, "keyspace "+k.Name, "\"tidemark operators\" shows what is under way, and "+
				"\"tidemark why\" what it waits for", "%s fewer replicas than it is to have",
				has(n, "partition"))
		}
		if n := together[k.Name]; n > 0 {
			c.add(Warning, "keyspace "+k.Name, "look at the keyspace's placement rule and at the space in "+
				"the other zones", "%s all replicas in one zone", has(n, "partition"))
		}
	}
	voters := 0
	for _, m := range f.Core.Members {
		if m.Role == "voter" {
			voters++
		}
	}
	switch servers := len(f.Servers); {
	case f.Errs["core"] != nil:
	case voters == 1 && servers > 1:
		c.add(Advice, "core", "add members, to have three (\"tidemark core add\")",
			"it has one member: the cluster stands still when that server is down")
	case voters > 1 && voters%2 == 0:
		c.add(Advice, "core", "add or remove a member (\"tidemark core\")",
			"it has %d members, which bear no more failures than %d do", voters, voters-1)
	}
	c.Looked = counted(len(f.Partitions), "partition")
	return c
}

func has(n int, what string) string {
	if n == 1 {
		return "1 " + what + " has"
	}
	return fmt.Sprintf("%d %ss have", n, what)
}

// nearQuota is the used part of a quota from which on a keyspace is reported.
const nearQuota = 0.8

// quotas checks which keyspaces have almost reached a quota.
func (f *Facts) quotas(c *Check) {
	for _, k := range f.Keyspaces {
		if k.Used == nil {
			continue
		}
		for _, q := range []struct {
			what, flag  string
			used, quota uint64
			full        string
		}{
			{"stored bytes", "--quota-bytes", k.Used.Bytes, k.Quotas.Bytes,
				"writes that add data are refused"},
			{"requests a second", "--quota-requests", k.Used.Requests, k.Quotas.Requests,
				"requests beyond it are refused"},
			{"bytes a second", "--quota-throughput", k.Used.Throughput, k.Quotas.Throughput,
				"requests beyond it are refused"},
		} {
			part := float64(q.used) / float64(max(q.quota, 1))
			if q.quota == 0 || part < nearQuota {
				continue
			}
			text := fmt.Sprintf("it uses %.0f %% of its quota of %s", 100*part, q.what)
			if part >= 1 {
				text += ": " + q.full
			}
			c.add(Warning, "keyspace "+k.Name, "find out what uses it, or raise the quota (\"tidemark "+
				"keyspace alter "+k.Name+" "+q.flag+"\")", "%s", text)
		}
	}
}

// placement checks the running moves.
func (f *Facts) placement() Check {
	c := Check{Area: "placement", Looked: counted(len(f.Operators), "operator") + " under way"}
	if f.unknown(&c, "operators", "placement") {
		return c
	}
	if f.Placement.Paused {
		c.add(Warning, "", "\"tidemark placement resume\" when the reason for the pause is over",
			"placement is paused: no replica and no leader is moved, not even for a repair")
	}
	for _, o := range f.Operators {
		if o.Age >= slowOperator {
			c.add(Warning, fmt.Sprintf("partition %d of %s", o.Partition, o.Keyspace),
				"see to what it waits for, or cancel it (\"tidemark move PARTITION --cancel\")",
				"its operator (%s) has taken %v, and waits for: %s", o.Kind, short(o.Age), o.WaitsFor)
		}
	}
	for _, n := range f.Nodes {
		if n.Status == admin.NodeDraining && n.Leaders == 0 {
			c.add(Advice, fmt.Sprintf("node %d (%s)", n.ID, n.Address), "\"tidemark node undo\" when "+
				"the maintenance is over", "it is drained: it leads nothing, and gets no replicas")
		}
	}
	return c
}

// backups checks whether the data could be restored.
func (f *Facts) backups() Check {
	c := Check{Area: "backups", Looked: counted(len(f.Schedules), "schedule")}
	if f.unknown(&c, "backups", "schedules") {
		return c
	}
	complete := false
	for _, b := range f.Backups {
		complete = complete || b.State == admin.BackupComplete
	}
	if len(f.Schedules) == 0 && len(f.Keyspaces) > 0 {
		do := "\"tidemark backup schedule create\" makes backups by itself: see docs/backup.md"
		if complete {
			c.add(Advice, "", do, "no schedule makes backups")
		} else {
			c.add(Warning, "", do, "there is no backup that is known to the cluster, and no schedule")
		}
	}
	for _, s := range f.Schedules {
		on := "schedule " + s.Name
		every := s.Full
		if s.Incremental > 0 {
			every = min(every, s.Incremental)
		}
		last := s.LastAt.Time()
		if s.Last == "" {
			last = s.Created
		}
		switch late := f.Now.Sub(last); {
		case s.Paused:
			c.add(Warning, on, "\"tidemark backup schedule resume\"", "it is paused")
			continue
		case s.Error != "":
			c.add(Warning, on, "see to the reason; the schedule tries again by itself",
				"its last backup failed: %s", s.Error)
		case every > 0 && late > lateFactor*every:
			c.add(Bad, on, "\"tidemark backup jobs\" shows what is being made, and the log of the core's "+
				"leader why it is not", "its last backup is %v old, and there should be one every %v",
				short(late), every)
		}
		if s.Broken {
			c.add(Warning, on, "wait for the full backup, which begins by itself",
				"its chain is broken: the next backup has to be a full one")
		}
		// LogAt is zero until the log has finished its first round.
		switch late := f.Now.Sub(s.LogAt.Time()); {
		case s.LogError != "":
			c.add(Warning, on, "see to the reason; the log goes on by itself", "its log stands still: %s",
				s.LogError)
		case s.Log > 0 && s.LogID != "" && !s.LogAt.IsZero() && late > lateFactor*s.Log+lateLog:
			c.add(Bad, on, "look at the log of the core's leader", "its log is %v behind", short(late))
		}
	}
	return c
}
