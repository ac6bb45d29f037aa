package links

// shapes are the links that are not healthy.
type shapes map[Link]Shape

// merge takes in changes.
func (s shapes) merge(changed map[Link]Shape) {
	for l, shape := range changed {
		if shape == (Shape{}) {
			delete(s, l)
		} else {
			s[l] = shape
		}
	}
}
