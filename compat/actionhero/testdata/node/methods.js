'use strict'
// What the processes of the promise eras can be asked.
module.exports = {
  echo: async (v) => v,
  fail: async (v) => new Error(v),
  none: async () => {},
  nothing: async () => null,
  several: async () => [null, 'x'],
  object: async () => ({ a: 1, b: [2] }),
  three: async () => 3,
  throws: async () => { throw new Error('as thrown') },
  throwsAtOnce: () => { throw new Error('as thrown') },
  endless: async () => { const v = {}; v.v = v; return v },
  sum: async (a, b) => a + b,
  mute: () => new Promise(() => {})
}
