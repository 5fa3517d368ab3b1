exports.default = {}
