package words

import (
	"fmt"
	"strconv"
)

// Name returns the name of a value of an enumeration, or its number if it has no name.
func Name(names []string, i int) string {
	if i < 0 || i >= len(names) {
		return strconv.Itoa(i)
	}
	return names[i]
}

// Place names a zone by its region and its name; either may be empty.
func Place(region, zone string) string {
	switch {
	case zone == "" && region == "":
		return "an unnamed zone"
	case region == "":
		return "zone " + zone
	case zone == "":
		return "region " + region
	}
	return fmt.Sprintf("zone %s/%s", region, zone)
}

// Plural writes a number of things: "1 node", "2 nodes".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Size writes an amount of bytes, in MiB below 10 GiB and in GiB from there on.
func Size(bytes int64) string {
	if bytes < 10<<30 {
		return fmt.Sprintf("%d MiB", bytes>>20)
	}
	return fmt.Sprintf("%d GiB", bytes>>30)
}

// Percent writes a deviation from a share as a part of the share: 0.1 is "110 %".
func Percent(deviation float64) string { return fmt.Sprintf("%.0f %%", 100*(1+deviation)) }

// Permille writes a number of thousandths in percent: 250 is "25 %".
func Permille(n int) string { return fmt.Sprintf("%.0f %%", float64(n)/10) }
