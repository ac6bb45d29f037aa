package isolation

import (
	"fmt"
	"strings"
)

// why describes the reason of a dependency.
func (c *checker) why(e edge) string {
	from, to := c.name(e.from), c.name(e.to)
	if e.key == none || e.class == realtime {
		if e.class == process {
			return fmt.Sprintf("session %d ran %s before %s", c.history[e.from].Session, from, to)
		}
		text := fmt.Sprintf("%s ended at %v, before %s began at %v", from, c.history[e.from].End,
			to, c.history[e.to].Begin)
		if e.key != none {
			text += fmt.Sprintf(", and both use %s", word(c.keys[e.key].name))
		}
		return text
	}
	k := c.keys[e.key]
	name := word(k.name)
	verb := "wrote"
	if k.list {
		verb = "appended"
	}
	order := ""
	if e.class == wwRealtime || e.class == rwRealtime {
		order = " (in real time)"
	}
	switch e.class {
	case ww, wwRealtime:
		return fmt.Sprintf("%s %s %s to %s after %s%s, which %s %s", to, verb, k.text(e.after),
			name, k.text(e.before), order, from, verb)
	case wr:
		if k.list {
			return fmt.Sprintf("%s read %s up to %s, which %s appended", to, name, k.text(e.before),
				from)
		}
		return fmt.Sprintf("%s read %s as %s, which %s wrote", to, name, k.text(e.before), from)
	default:
		read := k.text(e.before)
		if k.list {
			if read = "[]"; e.before != none {
				read = "up to " + k.text(e.before)
			}
			return fmt.Sprintf("%s read %s %s, and %s appended %s after that", from, name, read, to,
				k.text(e.after))
		}
		return fmt.Sprintf("%s read %s as %s, and %s wrote %s after that%s", from, name, read, to,
			k.text(e.after), order)
	}
}

// explain describes a cycle: its transactions, and why each comes before the next.
func (c *checker) explain(f Finding) string {
	const longest, most = 400, 25
	var b strings.Builder
	shown := f.Cycle[:min(len(f.Cycle), most)]
	for i, d := range shown {
		if i == 0 {
			b.WriteString(c.name(int32(d.From)))
		}
		fmt.Fprintf(&b, " -%s-> %s", d.Kind, c.name(int32(d.To)))
	}
	if more := len(f.Cycle) - len(shown); more > 0 {
		fmt.Fprintf(&b, " and so on, over %d others, back to %s", more,
			c.name(int32(f.Cycle[0].From)))
	}
	if f.Component > len(f.Cycle) {
		fmt.Fprintf(&b, " (%d transactions depend on one another; this is a short cycle of them)",
			f.Component)
	}
	for _, d := range shown {
		t := c.history[d.From]
		t.Name = c.name(int32(d.From))
		text := t.String()
		if len(text) > longest {
			text = text[:longest] + "..."
		}
		fmt.Fprintf(&b, "\n  %s", text)
	}
	for _, d := range shown {
		fmt.Fprintf(&b, "\n  %s before %s: %s", c.name(int32(d.From)), c.name(int32(d.To)), d.Why)
	}
	return b.String()
}
